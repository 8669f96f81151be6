//! Signatures by the audit key.

use data_encoding::BASE64;
use keys::KeyType;
use x509::{Fingerprint, PublicKey, verify_signature};

/// Why a signature does not count.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SignatureFault {
    /// The key with the signature is invalid.
    #[error("the member key holds no public key")]
    Key,
    /// The signature is not by the key.
    #[error("the signature is not by the key {0}")]
    Signature(Fingerprint),
    /// Another key than the one that is expected.
    #[error("signed by the key {found}, not by {expected}")]
    OtherKey {
        /// The key that signed.
        found: Fingerprint,
        /// The key that the caller trusts.
        expected: Fingerprint,
    },
}

/// The public key of a member `key`: a DER SubjectPublicKeyInfo.
///
/// # Errors
/// [`SignatureFault::Key`]
pub fn key_of(key: &str) -> Result<Vec<u8>, SignatureFault> {
    BASE64.decode(key.as_bytes()).map_err(|_| SignatureFault::Key)
}

/// Checks a signature (base64) over `text` by the key beside it (base64), which must be `expected` where that is given.
///
/// # Errors
/// [`SignatureFault`]
pub fn check(text: &str, key: &str, signature: &str, expected: Option<&[u8]>) -> Result<(), SignatureFault> {
    let spki = key_of(key)?;
    if let Some(expected) = expected.filter(|expected| **expected != spki) {
        let (found, expected) = (Fingerprint::of(&spki), Fingerprint::of(expected));
        return Err(SignatureFault::OtherKey { found, expected });
    }
    let public = PublicKey::parse(&spki).map_err(|_| SignatureFault::Key)?;
    let kind = KeyType::of(&public).ok_or(SignatureFault::Key)?;
    let signature = BASE64.decode(signature.as_bytes()).unwrap_or_default();
    verify_signature(&public, &kind.algorithm(), text.as_bytes(), &signature)
        .map_err(|_| SignatureFault::Signature(Fingerprint::of(&spki)))
}
