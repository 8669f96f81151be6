//! Errors of loading keys, signing and decryption.

use std::io;

use crate::KeyType;

/// Reason why a private key cannot be loaded or generated.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum KeyError {
    /// The text has no PEM block with a private key.
    #[error("no private key found; supported PEM blocks are PRIVATE KEY, RSA PRIVATE KEY and EC PRIVATE KEY")]
    NoKey,
    /// The PKCS#8 key is encrypted, and no passphrase was given.
    #[error("the private key is encrypted: give its passphrase")]
    Encrypted,
    /// The key is in OpenSSL's legacy encryption, which derives its key with a single MD5.
    #[error(
        "the private key uses the legacy encryption of OpenSSL; convert it: openssl pkey -in OLD -out NEW"
    )]
    LegacyEncryption,
    /// The passphrase is wrong.
    #[error("wrong passphrase for the private key")]
    WrongPassphrase,
    /// The data is not a private key in a supported encoding.
    #[error("not a private key: {0}")]
    Malformed(String),
    /// The key type is not supported.
    #[error(
        "{0} is not supported; use RSA of 2048, 3072 or 4096 bits, P-256, P-384, P-521, Ed25519 or ML-DSA"
    )]
    Unsupported(String),
    /// The numbers do not form a key, or the public and private halves do not match.
    #[error("invalid private key: {0}")]
    Unsound(String),
    /// The cryptography library could not generate a key.
    #[error("the cryptographic library could not generate a key of type {0}")]
    Generation(KeyType),
}

/// Reason why a key file cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("cannot read the key file: {0}")]
    Io(#[from] io::Error),
    /// The file has no usable private key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Decryption failed. For RSA encryption the error deliberately gives no reason: an attacker who can distinguish bad padding from a
/// bad key can decrypt messages (Bleichenbacher 1998).
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecryptError {
    /// The key is not an RSA key. Only RSA keys decrypt.
    #[error("a key of type {0} cannot decrypt")]
    NotRsa(KeyType),
    /// The message is not encrypted to this key.
    #[error("the data is not encrypted to this key")]
    Failed,
}

/// Reason why a signature was not made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SignError {
    /// The deadline passed before the signature was made. A retry may succeed.
    #[error("the key did not answer before the deadline; retry with a later deadline")]
    Late,
    /// The key, or the service that stores it, cannot be reached. A retry may succeed.
    #[error("the key cannot be reached: {0}")]
    Unavailable(String),
    /// The key refused, or its library failed. A retry does not help.
    #[error("signing failed: {0}")]
    Failed(String),
}
