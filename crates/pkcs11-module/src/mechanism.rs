//! What is signed how: the mechanisms (PKCS#11 2.40 mechanisms, sections 2.1 and 2.3) and the schemes of the key service.

use aws_lc_rs::digest::{self, Context};
use cryptoki_sys::*;
use keys::{Hash, KeyType, Scheme};

use crate::Outcome;
use crate::signature::{digest_of_info, raw_ecdsa};

/// What comes with a mechanism.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parameter {
    None,
    Pss(CK_RSA_PKCS_PSS_PARAMS),
    /// Something else.
    Other,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Family {
    Pkcs1,
    Pss,
    Ecdsa,
}

/// One that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mechanism {
    family: Family,
    /// Known beforehand; of a DigestInfo and of ECDSA's digests what is handed over tells.
    hash: Option<Hash>,
    /// Whether whole messages are handed over, which are hashed here.
    hashes: bool,
}

/// All of them.
pub(crate) const MECHANISMS: [CK_MECHANISM_TYPE; 14] = [
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
];

impl Mechanism {
    /// That of a number and what came with it.
    ///
    /// # Errors
    /// `CKR_MECHANISM_INVALID`, or `CKR_MECHANISM_PARAM_INVALID`: PSS is made with one hash throughout and a salt as long
    /// as that, and no other.
    pub(crate) fn of(number: CK_MECHANISM_TYPE, parameter: Parameter) -> Outcome<Self> {
        let mechanism = Self::of_number(number).ok_or(CKR_MECHANISM_INVALID)?;
        match (mechanism.family, parameter) {
            (Family::Pss, Parameter::Pss(given)) => {
                let hash = pss_hash(given).ok_or(CKR_MECHANISM_PARAM_INVALID)?;
                if mechanism.hash.is_some_and(|wanted| wanted != hash) {
                    return Err(CKR_MECHANISM_PARAM_INVALID);
                }
                Ok(Self { hash: Some(hash), ..mechanism })
            }
            (Family::Pkcs1 | Family::Ecdsa, Parameter::None) => Ok(mechanism),
            _ => Err(CKR_MECHANISM_PARAM_INVALID),
        }
    }

    fn of_number(number: CK_MECHANISM_TYPE) -> Option<Self> {
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
            _ => return None,
        };
        Some(Self { family, hash, hashes: hash.is_some() })
    }

    /// Whether keys of this kind sign so.
    pub(crate) fn fits(self, kind: KeyType) -> bool {
        (self.family == Family::Ecdsa) == kind.rsa_bits().is_none()
    }

    /// Where the octets of a whole message go; `None` where a digest is handed over, at once.
    pub(crate) fn hashing(self) -> Option<Context> {
        let algorithm = match self.hash.filter(|_| self.hashes)? {
            Hash::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Hash::Sha224 => &digest::SHA224,
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha384 => &digest::SHA384,
            Hash::Sha512 => &digest::SHA512,
            Hash::Md5Sha1 => return None,
        };
        Some(Context::new(algorithm))
    }

    /// How the key service is asked, and for what, where this digest or DigestInfo was handed over or made.
    ///
    /// # Errors
    /// `CKR_DATA_INVALID` for what is no DigestInfo, `CKR_DATA_LEN_RANGE` for what is no digest.
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
            (Family::Ecdsa, hash) => {
                // A signature is over the digest's octets, whichever hash made them.
                let hash = hash.or_else(of_length).filter(|hash| *hash != Hash::Md5Sha1);
                Ok((Scheme::Ecdsa(hash.ok_or(CKR_DATA_LEN_RANGE)?), input))
            }
        }
    }
}

/// The hash of parameters that the key service makes PSS with (RFC 8446 section 4.2.3: no others are in TLS).
fn pss_hash(given: CK_RSA_PKCS_PSS_PARAMS) -> Option<Hash> {
    let hash = match (given.hashAlg, given.mgf) {
        (CKM_SHA256, CKG_MGF1_SHA256) => Hash::Sha256,
        (CKM_SHA384, CKG_MGF1_SHA384) => Hash::Sha384,
        (CKM_SHA512, CKG_MGF1_SHA512) => Hash::Sha512,
        _ => return None,
    };
    (usize::try_from(given.sLen) == Ok(hash.octets())).then_some(hash)
}

/// Octets of a signature as programs get it.
pub(crate) fn signature_octets(kind: KeyType) -> usize {
    match kind.rsa_bits() {
        Some(bits) => bits as usize / 8,
        None => 2 * order_octets(kind),
    }
}

/// What the key service made, as programs get it; `None` for what it cannot have made with this key.
pub(crate) fn encoded(kind: KeyType, signature: Vec<u8>) -> Option<Vec<u8>> {
    if kind.rsa_bits().is_none() {
        return raw_ecdsa(&signature, order_octets(kind));
    }
    (signature.len() == signature_octets(kind)).then_some(signature)
}

/// Octets of the curve's order.
fn order_octets(kind: KeyType) -> usize {
    match kind {
        KeyType::P384 => 48,
        KeyType::P521 => 66,
        _ => 32,
    }
}

/// What keys a mechanism takes and what it does.
pub(crate) fn info(number: CK_MECHANISM_TYPE) -> Outcome<CK_MECHANISM_INFO> {
    let mechanism = Mechanism::of_number(number).ok_or(CKR_MECHANISM_INVALID)?;
    Ok(match mechanism.family {
        Family::Ecdsa => CK_MECHANISM_INFO {
            ulMinKeySize: 256,
            ulMaxKeySize: 521,
            flags: CKF_SIGN | CKF_EC_F_P | CKF_EC_NAMEDCURVE | CKF_EC_UNCOMPRESS,
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
    fn pss_has_one_hash_and_a_salt_as_long() {
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
        ] {
            let found = Mechanism::of(number, parameter).err();
            assert_eq!(found, Some(CKR_MECHANISM_PARAM_INVALID), "{number:#x} {parameter:?}");
        }
        assert_eq!(Mechanism::of(CKM_RSA_X_509, Parameter::None).err(), Some(CKR_MECHANISM_INVALID));
    }

    #[test]
    fn what_is_listed_is_there_and_fits_one_kind_of_key() {
        for number in MECHANISMS {
            let mechanism = Mechanism::of_number(number).unwrap();
            assert_ne!(mechanism.fits(KeyType::Rsa2048), mechanism.fits(KeyType::P256), "{number:#x}");
            assert_eq!(info(number).unwrap().flags & CKF_SIGN, CKF_SIGN);
        }
    }

    #[test]
    fn digests_have_the_length_of_a_hash() {
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
}
