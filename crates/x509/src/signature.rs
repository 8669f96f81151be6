//! Verification of signatures on certificates, and of the signatures by which TLS servers prove possession of their key.

use aws_lc_rs::signature as lc;
use lc::{RsaParameters, RsaPssSaltLength, UnparsedPublicKey, VerificationAlgorithm};

use crate::{Certificate, KeyAlgorithm, PublicKey, SignatureAlgorithm, oid};

/// Reason why a signature is not accepted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SignatureError {
    /// The signature was not made by this key over this message, or the key has another type.
    #[error("the signature does not match the key")]
    Invalid,
    /// The signature cannot be verified here; it may be valid.
    #[error("cannot verify the signature: {0}")]
    Unsupported(&'static str),
}

type Algorithm = &'static dyn VerificationAlgorithm;

/// Verifies that `signature` over `message` was made with the private key of `key`. The salt of RSASSA-PSS must be as long as the
/// hash, as RFC 8446 section 4.2.3 requires.
///
/// # Errors
/// [`SignatureError::Invalid`] if the signature is wrong; [`SignatureError::Unsupported`] if the library cannot verify it (MD5,
/// DSA, RSA under 1,024 bits …).
pub fn verify_signature(
    key: &PublicKey,
    algorithm: &SignatureAlgorithm,
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    check(choose(key, algorithm)?, key, message, signature)
}

impl Certificate {
    /// Returns whether the certificate is self-signed (RFC 5280 section 3.2), as far as can be checked: it is self-issued, and
    /// neither its key identifiers nor its signature show that another key signed it.
    #[must_use]
    pub fn is_self_signed(&self) -> bool {
        let other_key = self
            .subject_key_id
            .as_ref()
            .zip(self.authority_key_id.as_ref())
            .is_some_and(|(own, issuer)| own != issuer);
        self.is_self_issued()
            && !other_key
            && self.signed_by(&self.public_key) != Err(SignatureError::Invalid)
    }

    /// Verifies that `issuer` signed this certificate.
    ///
    /// # Errors
    /// As [`verify_signature`].
    pub fn signed_by(&self, issuer: &PublicKey) -> Result<(), SignatureError> {
        verify_document(issuer, &self.signature, self.tbs(), self.signature_value())
    }
}

/// Verifies a signature like [`verify_signature`], but on a signed document (certificate, request, CRL, OCSP response). For these,
/// RFC 4055 permits any salt length of RSASSA-PSS, and OpenSSL uses the longest by default.
///
/// # Errors
/// As [`verify_signature`].
pub fn verify_document(
    key: &PublicKey,
    algorithm: &SignatureAlgorithm,
    tbs: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    let outcome = verify_signature(key, algorithm, tbs, signature);
    match (outcome, max_salt_algorithm(algorithm)) {
        (Err(SignatureError::Invalid), Some(algorithm)) if is_rsa(key) => {
            check(algorithm, key, tbs, signature)
        }
        (outcome, _) => outcome,
    }
}

fn check(
    algorithm: Algorithm,
    key: &PublicKey,
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    UnparsedPublicKey::new(algorithm, key.key_bytes())
        .verify(message, signature)
        .map_err(|_| SignatureError::Invalid)
}

fn is_rsa(key: &PublicKey) -> bool {
    matches!(key.algorithm, KeyAlgorithm::Rsa | KeyAlgorithm::RsaPss)
}

fn max_salt_algorithm(algorithm: &SignatureAlgorithm) -> Option<Algorithm> {
    const SHA256: RsaParameters = lc::RSA_PSS_2048_8192_SHA256.with_pss_salt_length(RsaPssSaltLength::Max);
    const SHA384: RsaParameters = lc::RSA_PSS_2048_8192_SHA384.with_pss_salt_length(RsaPssSaltLength::Max);
    const SHA512: RsaParameters = lc::RSA_PSS_2048_8192_SHA512.with_pss_salt_length(RsaPssSaltLength::Max);
    match algorithm {
        SignatureAlgorithm::RsaPss(256) => Some(&SHA256),
        SignatureAlgorithm::RsaPss(384) => Some(&SHA384),
        SignatureAlgorithm::RsaPss(512) => Some(&SHA512),
        _ => None,
    }
}

/// Returns the library's verifier for this key and algorithm.
fn choose(key: &PublicKey, algorithm: &SignatureAlgorithm) -> Result<Algorithm, SignatureError> {
    use SignatureAlgorithm as S;
    match algorithm {
        S::RsaMd2 | S::RsaMd5 => Err(SignatureError::Unsupported("MD2 and MD5 are not supported")),
        S::RsaSha1 | S::RsaSha256 | S::RsaSha384 | S::RsaSha512 | S::RsaPss(_) => choose_rsa(key, algorithm),
        S::EcdsaSha1 | S::EcdsaSha256 | S::EcdsaSha384 | S::EcdsaSha512 => choose_ecdsa(key, algorithm),
        S::DsaSha1 | S::DsaSha256 => Err(SignatureError::Unsupported("DSA is not supported")),
        S::Ed25519 if key.algorithm == KeyAlgorithm::Ed25519 => Ok(&lc::ED25519),
        S::Ed25519 => Err(SignatureError::Invalid),
        S::Ed448 => Err(SignatureError::Unsupported("Ed448 is not supported")),
        S::MlDsa(set) if key.algorithm == KeyAlgorithm::MlDsa(*set) => match set {
            44 => Ok(&lc::ML_DSA_44),
            65 => Ok(&lc::ML_DSA_65),
            87 => Ok(&lc::ML_DSA_87),
            _ => Err(SignatureError::Unsupported("unknown ML-DSA parameter set")),
        },
        S::MlDsa(_) => Err(SignatureError::Invalid),
        S::Other(_) => Err(SignatureError::Unsupported("unknown algorithm")),
    }
}

fn choose_rsa(key: &PublicKey, algorithm: &SignatureAlgorithm) -> Result<Algorithm, SignatureError> {
    use SignatureAlgorithm as S;
    if !is_rsa(key) {
        return Err(SignatureError::Invalid);
    }
    if key.bits < 1_024 {
        return Err(SignatureError::Unsupported("RSA keys under 1,024 bits are not supported"));
    }
    if key.bits > 8_192 {
        return Err(SignatureError::Unsupported("RSA keys over 8,192 bits are not supported"));
    }
    // RFC 4055 section 1.2: a key with the algorithm RSASSA-PSS may only be used with that scheme.
    let pss = matches!(algorithm, S::RsaPss(_));
    if key.algorithm == KeyAlgorithm::RsaPss && !pss {
        return Err(SignatureError::Invalid);
    }
    Ok(match algorithm {
        S::RsaSha1 => &lc::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
        S::RsaSha256 => &lc::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        S::RsaSha512 => &lc::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        _ if key.bits < 2_048 => {
            let why = "RSA keys under 2,048 bits are not supported with SHA-384 or PSS";
            return Err(SignatureError::Unsupported(why));
        }
        S::RsaSha384 => &lc::RSA_PKCS1_2048_8192_SHA384,
        S::RsaPss(256) => &lc::RSA_PSS_2048_8192_SHA256,
        S::RsaPss(384) => &lc::RSA_PSS_2048_8192_SHA384,
        S::RsaPss(512) => &lc::RSA_PSS_2048_8192_SHA512,
        _ => {
            return Err(SignatureError::Unsupported("RSASSA-PSS with this hash is not supported"));
        }
    })
}

fn choose_ecdsa(key: &PublicKey, algorithm: &SignatureAlgorithm) -> Result<Algorithm, SignatureError> {
    use KeyAlgorithm as K;
    use SignatureAlgorithm as S;
    Ok(match (&key.algorithm, algorithm) {
        (K::EcP256, S::EcdsaSha1) => &lc::ECDSA_P256_SHA1_ASN1,
        (K::EcP256, S::EcdsaSha256) => &lc::ECDSA_P256_SHA256_ASN1,
        (K::EcP256, S::EcdsaSha384) => &lc::ECDSA_P256_SHA384_ASN1,
        (K::EcP256, S::EcdsaSha512) => &lc::ECDSA_P256_SHA512_ASN1,
        (K::EcP384, S::EcdsaSha256) => &lc::ECDSA_P384_SHA256_ASN1,
        (K::EcP384, S::EcdsaSha384) => &lc::ECDSA_P384_SHA384_ASN1,
        (K::EcP384, S::EcdsaSha512) => &lc::ECDSA_P384_SHA512_ASN1,
        (K::EcP521, S::EcdsaSha1) => &lc::ECDSA_P521_SHA1_ASN1,
        (K::EcP521, S::EcdsaSha256) => &lc::ECDSA_P521_SHA256_ASN1,
        (K::EcP521, S::EcdsaSha384) => &lc::ECDSA_P521_SHA384_ASN1,
        (K::EcP521, S::EcdsaSha512) => &lc::ECDSA_P521_SHA512_ASN1,
        (K::EcOther(curve), S::EcdsaSha256) if curve == oid::SECP256K1 => &lc::ECDSA_P256K1_SHA256_ASN1,
        (K::EcP384 | K::EcOther(_), _) => {
            return Err(SignatureError::Unsupported("this curve is not supported with this hash"));
        }
        _ => return Err(SignatureError::Invalid),
    })
}
