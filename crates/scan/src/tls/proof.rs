//! Whether a signature over the handshake was made with the leaf's key.
//!
//! The signature may break TLS's own rules (PKCS #1 v1.5 in TLS 1.3, a curve that its scheme does
//! not name): it proves possession all the same, and the scheme is recorded.

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use x509::der::{DerError, Reader, tag};

use super::Proof;

/// The scheme TLS 1.0 and 1.1 imply for ECDSA (RFC 4492 section 5.4).
pub(super) const ECDSA_SHA1: u16 = 0x0203;

const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const RSASSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
const DSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: &[u8] = &[0x2b, 0x81, 4, 0, 34];
const P521: &[u8] = &[0x2b, 0x81, 4, 0, 35];
const SECP256K1: &[u8] = &[0x2b, 0x81, 4, 0, 10];
const ED25519: &[u8] = &[0x2b, 0x65, 112];
const ED448: &[u8] = &[0x2b, 0x65, 113];
const ML_DSA_44: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, 17];
const ML_DSA_65: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, 18];
const ML_DSA_87: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, 19];

/// A certificate's public key, as far as a signature needs it. Reading only this much takes under a
/// microsecond; the whole certificate is read once, elsewhere, and only if it is new.
#[derive(Debug)]
pub(super) struct LeafKey<'a> {
    kind: Kind,
    /// The content of subjectPublicKey.
    key: &'a [u8],
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// Bits of the modulus.
    Rsa(usize),
    Dsa,
    P256,
    P384,
    P521,
    Secp256k1,
    OtherCurve,
    Ed25519,
    Ed448,
    MlDsa(u8),
    Other,
}

impl<'a> LeafKey<'a> {
    /// Finds the key in a certificate (RFC 5280 section 4.1).
    pub(super) fn read(certificate: &'a [u8]) -> Option<Self> {
        Self::find(certificate).ok()
    }

    fn find(certificate: &'a [u8]) -> Result<Self, DerError> {
        let mut tbs = Reader::new(certificate).sequence()?.sequence()?;
        tbs.optional(0xa0)?; // version
        for _ in ["serial", "signature", "issuer", "validity", "subject"] {
            tbs.any()?;
        }
        let mut spki = tbs.sequence()?;
        let mut algorithm = spki.sequence()?;
        let identifier = algorithm.expect(tag::OID)?.content;
        let key = spki.expect(tag::BIT_STRING)?.whole_bits()?;
        let kind = match identifier {
            RSA_ENCRYPTION | RSASSA_PSS => Kind::Rsa(modulus_bits(key)?),
            DSA => Kind::Dsa,
            EC_PUBLIC_KEY => curve(algorithm.optional(tag::OID)?.map(|curve| curve.content)),
            ED25519 => Kind::Ed25519,
            ED448 => Kind::Ed448,
            ML_DSA_44 => Kind::MlDsa(44),
            ML_DSA_65 => Kind::MlDsa(65),
            ML_DSA_87 => Kind::MlDsa(87),
            _ => Kind::Other,
        };
        Ok(Self { kind, key })
    }

    /// Checks a signature of a scheme that the server named.
    pub(super) fn verify(&self, scheme: u16, message: &[u8], signature: &[u8]) -> Proof {
        let algorithm = match algorithm(self.kind, scheme) {
            Ok(algorithm) => algorithm,
            Err(reason) => return reason,
        };
        match UnparsedPublicKey::new(algorithm, self.key).verify(message, signature) {
            Ok(()) => Proof::Verified,
            Err(_) => Proof::Invalid(format!(
                "the {} signature over this handshake does not fit the certificate's key",
                super::names::signature_scheme(scheme)
            )),
        }
    }

    /// Checks a signature of TLS 1.1 and before, whose scheme follows from the key.
    pub(super) fn verify_implied(&self, message: &[u8], signature: &[u8]) -> Proof {
        match self.kind {
            Kind::Rsa(_) => Proof::Unverifiable("RSA over MD5 and SHA-1 together, before TLS 1.2"),
            Kind::Dsa => DSA_UNCHECKED,
            _ => self.verify(ECDSA_SHA1, message, signature),
        }
    }
}

const DSA_UNCHECKED: Proof = Proof::Unverifiable("DSA signatures are not checked");

/// How a key of this kind checks that scheme, or why it does not.
fn algorithm(kind: Kind, scheme: u16) -> Result<&'static dyn VerificationAlgorithm, Proof> {
    match (kind, scheme) {
        (Kind::Rsa(bits), 0x0101..=0x0601 | 0x0804..=0x0806 | 0x0809..=0x080b) => {
            rsa(bits, scheme).map_err(Proof::Unverifiable)
        }
        (Kind::Dsa, _) => Err(DSA_UNCHECKED),
        (Kind::P256, 0x0203) => Ok(&signature::ECDSA_P256_SHA1_ASN1),
        (Kind::P256, 0x0403) => Ok(&signature::ECDSA_P256_SHA256_ASN1),
        (Kind::P256, 0x0503) => Ok(&signature::ECDSA_P256_SHA384_ASN1),
        (Kind::P256, 0x0603) => Ok(&signature::ECDSA_P256_SHA512_ASN1),
        (Kind::P384, 0x0403) => Ok(&signature::ECDSA_P384_SHA256_ASN1),
        (Kind::P384, 0x0503) => Ok(&signature::ECDSA_P384_SHA384_ASN1),
        (Kind::P384, 0x0603) => Ok(&signature::ECDSA_P384_SHA512_ASN1),
        (Kind::P521, 0x0203) => Ok(&signature::ECDSA_P521_SHA1_ASN1),
        (Kind::P521, 0x0303) => Ok(&signature::ECDSA_P521_SHA224_ASN1),
        (Kind::P521, 0x0403) => Ok(&signature::ECDSA_P521_SHA256_ASN1),
        (Kind::P521, 0x0503) => Ok(&signature::ECDSA_P521_SHA384_ASN1),
        (Kind::P521, 0x0603) => Ok(&signature::ECDSA_P521_SHA512_ASN1),
        (Kind::Secp256k1, 0x0403) => Ok(&signature::ECDSA_P256K1_SHA256_ASN1),
        (Kind::Ed25519, 0x0807) => Ok(&signature::ED25519),
        (Kind::MlDsa(44), 0x0904) => Ok(&signature::ML_DSA_44),
        (Kind::MlDsa(65), 0x0905) => Ok(&signature::ML_DSA_65),
        (Kind::MlDsa(87), 0x0906) => Ok(&signature::ML_DSA_87),
        (Kind::P256 | Kind::P384 | Kind::P521 | Kind::Secp256k1 | Kind::OtherCurve, _)
            if scheme & 0xff == 3 =>
        {
            Err(Proof::Unverifiable("this curve with this hash is not checked"))
        }
        (Kind::OtherCurve, 0x081a..=0x081c) => {
            Err(Proof::Unverifiable("signatures on this curve are not checked"))
        }
        (Kind::Ed448, 0x0808) => Err(Proof::Unverifiable("Ed448 signatures are not checked")),
        (Kind::Other, _) => Err(Proof::Unverifiable("a kind of key not known here")),
        _ => Err(Proof::Invalid(format!(
            "{} does not fit the certificate's kind of key",
            super::names::signature_scheme(scheme)
        ))),
    }
}

fn rsa(bits: usize, scheme: u16) -> Result<&'static dyn VerificationAlgorithm, &'static str> {
    let long = bits >= 2_048;
    match scheme {
        0x0101 => Err("RSA with MD5 is not checked"),
        _ if bits < 1_024 => Err("RSA keys under 1024 bits are not checked"),
        _ if bits > 8_192 => Err("RSA keys over 8192 bits are not checked"),
        0x0201 => Ok(&signature::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY),
        0x0401 => Ok(&signature::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY),
        0x0601 => Ok(&signature::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY),
        0x0501 if long => Ok(&signature::RSA_PKCS1_2048_8192_SHA384),
        0x0804 | 0x0809 if long => Ok(&signature::RSA_PSS_2048_8192_SHA256),
        0x0805 | 0x080a if long => Ok(&signature::RSA_PSS_2048_8192_SHA384),
        0x0806 | 0x080b if long => Ok(&signature::RSA_PSS_2048_8192_SHA512),
        _ => Err("this RSA scheme is not checked with a key of this length"),
    }
}

fn curve(identifier: Option<&[u8]>) -> Kind {
    match identifier {
        Some(P256) => Kind::P256,
        Some(P384) => Kind::P384,
        Some(P521) => Kind::P521,
        Some(SECP256K1) => Kind::Secp256k1,
        _ => Kind::OtherCurve,
    }
}

fn modulus_bits(rsa_public_key: &[u8]) -> Result<usize, DerError> {
    let modulus = Reader::new(rsa_public_key).sequence()?.expect(tag::INTEGER)?.content;
    Ok(bits(modulus))
}

/// Bits of an unsigned number.
pub(super) fn bits(number: &[u8]) -> usize {
    number.iter().position(|octet| *octet != 0).map_or(0, |zeros| {
        (number.len() - zeros) * 8 - number[zeros].leading_zeros() as usize
    })
}
