//! Verification of signatures made by remote keys.

use aws_lc_rs::signature::{self as lc, UnparsedPublicKey, VerificationAlgorithm};
use x509::der;

use crate::digest::{ecdsa_digest, rsa_digest};
use crate::{Hash, KeyType, Scheme};

/// Converts a digest for a service that signs digests with a key of this type; also returns the matching scheme. RSA digests are
/// unchanged. ECDSA reads a digest as a number, so every digest is passed in the length of the curve's own hash. For Ed25519 the
/// input is the message.
///
/// Returns `None` for RSA with MD5, SHA-1 or SHA-224, which such services do not sign.
#[must_use]
pub fn input_for_service(kind: KeyType, scheme: Scheme, input: &[u8]) -> Option<(Scheme, Vec<u8>)> {
    match scheme {
        Scheme::RsaPkcs1(hash) | Scheme::RsaPss(hash) => {
            rsa_digest(hash, input).map(|digest| (scheme, digest.as_ref().to_vec()))
        }
        Scheme::Ecdsa(_) => {
            let own = Scheme::of(kind).filter(|own| matches!(own, Scheme::Ecdsa(_)))?;
            ecdsa_digest(kind, input).map(|digest| (own, digest.as_ref().to_vec()))
        }
        Scheme::Ed25519 => (kind == KeyType::Ed25519).then(|| (scheme, input.to_vec())),
    }
}

/// Verifies `signature` over the digest `input` (for Ed25519: the message) with the public key `spki`. A PSS salt must have the
/// length of the hash. ECDSA signatures must be DER. Returns false if [`input_for_service`] returns `None`.
#[must_use]
pub fn verifies(spki: &[u8], kind: KeyType, scheme: Scheme, input: &[u8], signature: &[u8]) -> bool {
    let (algorithm, digest): (&'static dyn VerificationAlgorithm, _) = match scheme {
        Scheme::RsaPkcs1(hash) => match hash {
            Hash::Sha256 => (&lc::RSA_PKCS1_2048_8192_SHA256, rsa_digest(hash, input)),
            Hash::Sha384 => (&lc::RSA_PKCS1_2048_8192_SHA384, rsa_digest(hash, input)),
            Hash::Sha512 => (&lc::RSA_PKCS1_2048_8192_SHA512, rsa_digest(hash, input)),
            Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224 => return false,
        },
        Scheme::RsaPss(hash) => match hash {
            Hash::Sha256 => (&lc::RSA_PSS_2048_8192_SHA256, rsa_digest(hash, input)),
            Hash::Sha384 => (&lc::RSA_PSS_2048_8192_SHA384, rsa_digest(hash, input)),
            Hash::Sha512 => (&lc::RSA_PSS_2048_8192_SHA512, rsa_digest(hash, input)),
            Hash::Md5Sha1 | Hash::Sha1 | Hash::Sha224 => return false,
        },
        Scheme::Ecdsa(_) => match kind {
            KeyType::P256 => (&lc::ECDSA_P256_SHA256_ASN1, ecdsa_digest(kind, input)),
            KeyType::P384 => (&lc::ECDSA_P384_SHA384_ASN1, ecdsa_digest(kind, input)),
            KeyType::P521 => (&lc::ECDSA_P521_SHA512_ASN1, ecdsa_digest(kind, input)),
            _ => return false,
        },
        Scheme::Ed25519 => {
            let key = UnparsedPublicKey::new(&lc::ED25519, spki);
            return kind == KeyType::Ed25519 && key.verify(input, signature).is_ok();
        }
    };
    let Some(digest) = digest else { return false };
    UnparsedPublicKey::new(algorithm, spki).verify_digest(&digest, signature).is_ok()
}

/// Encodes an ECDSA signature as DER (RFC 3279 section 2.2.3). The input is r and s, concatenated (PKCS#11 section 6.3.1, RFC 7518
/// section 3.4). Returns `None` if the input does not split into two numbers of equal length.
#[must_use]
pub fn ecdsa_der(raw: &[u8]) -> Option<Vec<u8>> {
    if raw.is_empty() || raw.len() % 2 == 1 {
        return None;
    }
    let (r, s) = raw.split_at(raw.len() / 2);
    Some(der::write(|w| {
        w.sequence(|w| {
            w.unsigned(r).unsigned(s);
        });
    }))
}
