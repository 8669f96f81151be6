//! Signatures by the audit key.

use data_encoding::BASE64;
use keys::KeyType;
use x509::{Fingerprint, PublicKey, verify_signature};

/// Reason why a signature is invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SignatureFault {
    /// The member `key` is not a public key.
    #[error("the member `key` is not a public key")]
    Key,
    /// The key did not make the signature.
    #[error("the signature is not by the key {0}")]
    Signature(Fingerprint),
    /// The signing key is not the expected one.
    #[error("signed by key {found}, not by key {expected}")]
    OtherKey {
        /// Fingerprint of the key that signed.
        found: Fingerprint,
        /// The key that the caller expects.
        expected: Fingerprint,
    },
}

/// Decodes the public key in a member `key`: a DER SubjectPublicKeyInfo.
///
/// # Errors
/// [`SignatureFault::Key`]
pub fn key_of(key: &str) -> Result<Vec<u8>, SignatureFault> {
    BASE64.decode(key.as_bytes()).map_err(|_| SignatureFault::Key)
}

/// Checks a base64 signature over `text` with the base64 key. If `expected` is given, the key must equal it.
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
