//! Signature mechanisms (PKCS#11 2.40 mechanisms, sections 2.1 and 2.3; CKM_EDDSA from 3.0, section 2.3.14) and the corresponding
//! schemes of the key service.

use aws_lc_rs::digest::{self, Context};
use cryptoki_sys::*;
use keys::{Hash, KeyType, Scheme};
use x509::jwk::ecdsa_der_to_fixed;

use crate::Outcome;
use crate::signature::digest_of_info;

/// Maximum bytes of a message that a key signs without a separate hash (Ed25519). The Keyless protocol cannot carry more in
/// addition to a key and an opcode. TLS signs 200 bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 65_505;

/// Parameter that a program passes with a mechanism.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parameter {
    None,
    Pss(CK_RSA_PKCS_PSS_PARAMS),
    /// An unsupported parameter.
    Other,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Family {
    Pkcs1,
    Pss,
    Ecdsa,
    Eddsa,
}

/// Method by which the program's input is processed.
pub(crate) enum InputMode {
    /// The input is a digest or a DigestInfo, given in a single call.
    Digest,
    /// The input is hashed.
    Hash(Context),
    /// The input is stored, at most [`MESSAGE_BYTES_MAX`] bytes: the key signs the message itself.
    Message(Vec<u8>),
}

/// A signature mechanism that a program requested, with its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mechanism {
    family: Family,
    /// Hash of the mechanism. `None` when it follows from the input: from a DigestInfo, or from the length of an ECDSA digest.
    hash: Option<Hash>,
    /// Whether this module hashes the input, which is then a message. False for EdDSA: the key service needs the whole message.
    hashes: bool,
}

pub(crate) const MECHANISMS: [CK_MECHANISM_TYPE; 15] = [
    CKM_RSA_PKCS,
    CKM_SHA256_RSA_PKCS,
    CKM_SHA384_RSA_PKCS,
    CKM_SHA512_RSA_PKCS,
    CKM_RSA_PKCS_PSS,
    CKM_SHA256_RSA_PKCS_PSS,
    CKM_SHA384_RSA_PKCS_PSS,
    CKM_SHA512_RSA_PKCS_PSS,
    CKM_ECDSA,
    CKM_ECDSA_SHA1,
    CKM_ECDSA_SHA224,
    CKM_ECDSA_SHA256,
    CKM_ECDSA_SHA384,
    CKM_ECDSA_SHA512,
    CKM_EDDSA,
];

impl Mechanism {
    /// Returns the mechanism for a PKCS#11 mechanism number and its parameter.
    ///
    /// # Errors
    /// `CKR_MECHANISM_INVALID`, or `CKR_MECHANISM_PARAM_INVALID`. PSS needs the same hash for the message and for MGF1, and a salt
    /// of the hash's length. Parameters of EdDSA would select Ed25519ctx or Ed25519ph, which are other signature algorithms.
    pub(crate) fn of(number: CK_MECHANISM_TYPE, parameter: Parameter) -> Outcome<Self> {
        let mechanism = Self::from_number(number).ok_or(CKR_MECHANISM_INVALID)?;
        match (mechanism.family, parameter) {
            (Family::Pss, Parameter::Pss(given)) => {
                let hash = pss_hash(given).ok_or(CKR_MECHANISM_PARAM_INVALID)?;
                if mechanism.hash.is_some_and(|wanted| wanted != hash) {
                    return Err(CKR_MECHANISM_PARAM_INVALID);
                }
                Ok(Self { hash: Some(hash), ..mechanism })
            }
            (Family::Pkcs1 | Family::Ecdsa | Family::Eddsa, Parameter::None) => Ok(mechanism),
            _ => Err(CKR_MECHANISM_PARAM_INVALID),
        }
    }

    fn from_number(number: CK_MECHANISM_TYPE) -> Option<Self> {
        let (family, hash) = match number {
            CKM_RSA_PKCS => (Family::Pkcs1, None),
            CKM_SHA256_RSA_PKCS => (Family::Pkcs1, Some(Hash::Sha256)),
            CKM_SHA384_RSA_PKCS => (Family::Pkcs1, Some(Hash::Sha384)),
            CKM_SHA512_RSA_PKCS => (Family::Pkcs1, Some(Hash::Sha512)),
            CKM_RSA_PKCS_PSS => (Family::Pss, None),
            CKM_SHA256_RSA_PKCS_PSS => (Family::Pss, Some(Hash::Sha256)),
            CKM_SHA384_RSA_PKCS_PSS => (Family::Pss, Some(Hash::Sha384)),
            CKM_SHA512_RSA_PKCS_PSS => (Family::Pss, Some(Hash::Sha512)),
            CKM_ECDSA => (Family::Ecdsa, None),
            CKM_ECDSA_SHA1 => (Family::Ecdsa, Some(Hash::Sha1)),
            CKM_ECDSA_SHA224 => (Family::Ecdsa, Some(Hash::Sha224)),
            CKM_ECDSA_SHA256 => (Family::Ecdsa, Some(Hash::Sha256)),
            CKM_ECDSA_SHA384 => (Family::Ecdsa, Some(Hash::Sha384)),
            CKM_ECDSA_SHA512 => (Family::Ecdsa, Some(Hash::Sha512)),
            CKM_EDDSA => (Family::Eddsa, None),
            _ => return None,
        };
        Some(Self { family, hash, hashes: hash.is_some() })
    }

    /// Returns whether keys of this type support the mechanism.
    pub(crate) fn fits(self, kind: KeyType) -> bool {
        match self.family {
            Family::Pkcs1 | Family::Pss => kind.rsa_bits().is_some(),
            Family::Ecdsa => matches!(kind, KeyType::P256 | KeyType::P384 | KeyType::P521),
            Family::Eddsa => kind == KeyType::Ed25519,
        }
    }

    /// Returns how the program's input is processed.
    pub(crate) fn input_mode(self) -> InputMode {
        if self.family == Family::Eddsa {
            return InputMode::Message(Vec::new());
        }
        let algorithm = match self.hash.filter(|_| self.hashes) {
            Some(Hash::Sha1) => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Some(Hash::Sha224) => &digest::SHA224,
            Some(Hash::Sha256) => &digest::SHA256,
            Some(Hash::Sha384) => &digest::SHA384,
            Some(Hash::Sha512) => &digest::SHA512,
            Some(Hash::Md5Sha1) | None => return InputMode::Digest,
        };
        InputMode::Hash(Context::new(algorithm))
    }

    /// Converts a digest, a DigestInfo or a message to the key service's scheme and the input for this scheme.
    ///
    /// # Errors
    /// `CKR_DATA_INVALID` for an invalid DigestInfo, `CKR_DATA_LEN_RANGE` for a digest of a wrong length or a message that is too
    /// long.
    pub(crate) fn scheme(self, input: &[u8]) -> Outcome<(Scheme, &[u8])> {
        let of_length = || Hash::ALL.into_iter().find(|hash| hash.octets() == input.len());
        match (self.family, self.hash) {
            (Family::Pkcs1, None) => {
                let (hash, digest) = digest_of_info(input).ok_or(CKR_DATA_INVALID)?;
                Ok((Scheme::RsaPkcs1(hash), digest))
            }
            (_, Some(hash)) if hash.octets() != input.len() => Err(CKR_DATA_LEN_RANGE),
            (Family::Pkcs1, Some(hash)) => Ok((Scheme::RsaPkcs1(hash), input)),
            (Family::Pss, Some(hash)) => Ok((Scheme::RsaPss(hash), input)),
            (Family::Pss, None) => Err(CKR_MECHANISM_PARAM_INVALID),
            (Family::Eddsa, _) if input.len() > MESSAGE_BYTES_MAX => Err(CKR_DATA_LEN_RANGE),
            (Family::Eddsa, _) => Ok((Scheme::Ed25519, input)),
            (Family::Ecdsa, hash) => {
                // A signature covers the digest's bytes, independent of the hash algorithm.
                let hash = hash.or_else(of_length).filter(|hash| *hash != Hash::Md5Sha1);
                Ok((Scheme::Ecdsa(hash.ok_or(CKR_DATA_LEN_RANGE)?), input))
            }
        }
    }
}

impl InputMode {
    /// Adds the next part of a message.
    ///
    /// # Errors
    /// `CKR_FUNCTION_NOT_SUPPORTED` for digests, which must be given in a single call (sections 2.1.6 and 2.3.6 of the mechanisms);
    /// `CKR_DATA_LEN_RANGE` for messages that are too long.
    pub(crate) fn take(&mut self, part: &[u8]) -> Outcome {
        match self {
            Self::Digest => Err(CKR_FUNCTION_NOT_SUPPORTED),
            Self::Hash(context) => {
                context.update(part);
                Ok(())
            }
            Self::Message(message) if part.len() > MESSAGE_BYTES_MAX - message.len() => {
                Err(CKR_DATA_LEN_RANGE)
            }
            Self::Message(message) => {
                message.extend_from_slice(part);
                Ok(())
            }
        }
    }
}

/// Returns the hash of supported PSS parameters. The key service supports only the parameters of TLS (RFC 8446 section 4.2.3).
fn pss_hash(given: CK_RSA_PKCS_PSS_PARAMS) -> Option<Hash> {
    let hash = match (given.hashAlg, given.mgf) {
        (CKM_SHA256, CKG_MGF1_SHA256) => Hash::Sha256,
        (CKM_SHA384, CKG_MGF1_SHA384) => Hash::Sha384,
        (CKM_SHA512, CKG_MGF1_SHA512) => Hash::Sha512,
        _ => return None,
    };
    (usize::try_from(given.sLen) == Ok(hash.octets())).then_some(hash)
}

/// Returns the length of a signature in bytes in PKCS#11's encoding.
pub(crate) fn signature_len(kind: KeyType) -> usize {
    match kind.rsa_bits() {
        Some(bits) => bits as usize / 8,
        // Also correct for Ed25519: a point and a number (RFC 8032 section 5.1.6).
        None => 2 * order_len(kind),
    }
}

/// Converts a signature of the key service to PKCS#11's encoding. `None` if a key of this type cannot have made the signature.
pub(crate) fn encoded(kind: KeyType, signature: Vec<u8>) -> Option<Vec<u8>> {
    match kind {
        KeyType::P256 | KeyType::P384 | KeyType::P521 => ecdsa_der_to_fixed(&signature, order_len(kind)),
        _ => (signature.len() == signature_len(kind)).then_some(signature),
    }
}

/// Returns the length of the curve's order in bytes.
fn order_len(kind: KeyType) -> usize {
    match kind {
        KeyType::P384 => 48,
        KeyType::P521 => 66,
        _ => 32,
    }
}

/// Returns the supported key sizes and operations of a mechanism.
pub(crate) fn info(number: CK_MECHANISM_TYPE) -> Outcome<CK_MECHANISM_INFO> {
    let mechanism = Mechanism::from_number(number).ok_or(CKR_MECHANISM_INVALID)?;
    Ok(match mechanism.family {
        Family::Ecdsa => CK_MECHANISM_INFO {
            ulMinKeySize: 256,
            ulMaxKeySize: 521,
            flags: CKF_SIGN | CKF_EC_F_P | CKF_EC_NAMEDCURVE | CKF_EC_UNCOMPRESS,
        },
        // Key size of edwards25519.
        Family::Eddsa => CK_MECHANISM_INFO {
            ulMinKeySize: 255,
            ulMaxKeySize: 255,
            flags: CKF_SIGN | CKF_EC_F_P | CKF_EC_CURVENAME,
        },
        _ => CK_MECHANISM_INFO { ulMinKeySize: 2048, ulMaxKeySize: 4096, flags: CKF_SIGN },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pss(hash: CK_MECHANISM_TYPE, mgf: CK_RSA_PKCS_MGF_TYPE, salt: CK_ULONG) -> Parameter {
        Parameter::Pss(CK_RSA_PKCS_PSS_PARAMS { hashAlg: hash, mgf, sLen: salt })
    }

    #[test]
    fn pss_requires_matching_hashes_and_salt_length() {
        let good = pss(CKM_SHA256, CKG_MGF1_SHA256, 32);
        assert!(Mechanism::of(CKM_RSA_PKCS_PSS, good).is_ok());
        assert!(Mechanism::of(CKM_SHA256_RSA_PKCS_PSS, good).is_ok());
        for (number, parameter) in [
            (CKM_SHA384_RSA_PKCS_PSS, good),
            (CKM_RSA_PKCS_PSS, pss(CKM_SHA256, CKG_MGF1_SHA1, 32)),
            (CKM_RSA_PKCS_PSS, pss(CKM_SHA256, CKG_MGF1_SHA256, 20)),
            (CKM_RSA_PKCS_PSS, pss(CKM_SHA256, CKG_MGF1_SHA256, CK_ULONG::MAX)),
            (CKM_RSA_PKCS_PSS, pss(CKM_SHA_1, CKG_MGF1_SHA1, 20)),
            (CKM_RSA_PKCS_PSS, Parameter::None),
            (CKM_RSA_PKCS_PSS, Parameter::Other),
            (CKM_RSA_PKCS, good),
            (CKM_ECDSA, Parameter::Other),
            (CKM_EDDSA, Parameter::Other),
            // The same length as the parameters of EdDSA.
            (CKM_EDDSA, good),
        ] {
            let found = Mechanism::of(number, parameter).err();
            assert_eq!(found, Some(CKR_MECHANISM_PARAM_INVALID), "{number:#x} {parameter:?}");
        }
        assert_eq!(Mechanism::of(CKM_RSA_X_509, Parameter::None).err(), Some(CKR_MECHANISM_INVALID));
    }

    #[test]
    fn every_listed_mechanism_exists_and_fits_one_key_type() {
        for number in MECHANISMS {
            let mechanism = Mechanism::from_number(number).unwrap();
            let kinds = [KeyType::Rsa2048, KeyType::P256, KeyType::Ed25519, KeyType::MlDsa65];
            assert_eq!(kinds.into_iter().filter(|kind| mechanism.fits(*kind)).count(), 1, "{number:#x}");
            assert_eq!(info(number).unwrap().flags & CKF_SIGN, CKF_SIGN);
        }
    }

    #[test]
    fn digest_length_must_match_a_hash() {
        let ecdsa = Mechanism::of(CKM_ECDSA, Parameter::None).unwrap();
        assert_eq!(ecdsa.scheme(&[1; 48]), Ok((Scheme::Ecdsa(Hash::Sha384), &[1; 48][..])));
        for octets in [0, 31, 33, 36, 65] {
            assert_eq!(ecdsa.scheme(&vec![1; octets]), Err(CKR_DATA_LEN_RANGE), "{octets}");
        }
        let pkcs1 = Mechanism::of(CKM_RSA_PKCS, Parameter::None).unwrap();
        assert_eq!(pkcs1.scheme(&[1; 32]), Err(CKR_DATA_INVALID));
        let pss = Mechanism::of(CKM_RSA_PKCS_PSS, pss(CKM_SHA256, CKG_MGF1_SHA256, 32)).unwrap();
        assert_eq!(pss.scheme(&[1; 48]), Err(CKR_DATA_LEN_RANGE));
        assert_eq!(pss.scheme(&[1; 32]), Ok((Scheme::RsaPss(Hash::Sha256), &[1; 32][..])));
    }

    /// The longest accepted message is the longest that the protocol can carry.
    #[test]
    fn eddsa_message_length_is_limited_by_the_protocol() {
        use keyless::wire::{MessageItems, Ski};
        let eddsa = Mechanism::of(CKM_EDDSA, Parameter::None).unwrap();
        let longest = vec![1; MESSAGE_BYTES_MAX];
        assert_eq!(eddsa.scheme(&longest), Ok((Scheme::Ed25519, &longest[..])));
        let longer = vec![1; MESSAGE_BYTES_MAX + 1];
        assert_eq!(eddsa.scheme(&longer), Err(CKR_DATA_LEN_RANGE));
        for (payload, fits) in [(&longest, true), (&longer, false)] {
            let items =
                MessageItems { opcode: 0x18, ski: Some(Ski([7; 20])), payload, ..MessageItems::default() };
            assert_eq!(items.encode(1, &mut Vec::new()).is_ok(), fits, "{}", payload.len());
        }
        let mut input_mode = eddsa.input_mode();
        for _ in 0..MESSAGE_BYTES_MAX / 5 {
            assert_eq!(input_mode.take(&[1; 5]), Ok(()));
        }
        assert_eq!(input_mode.take(&[1; 1]), Err(CKR_DATA_LEN_RANGE));
        assert_eq!(
            Mechanism::of(CKM_ECDSA, Parameter::None).unwrap().input_mode().take(&[1]),
            Err(CKR_FUNCTION_NOT_SUPPORTED)
        );
    }
}
