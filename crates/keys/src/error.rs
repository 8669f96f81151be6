//! Why there is no key, no signature, no clear text.

use std::io;

use crate::KeyType;

/// Why there is no key.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum KeyError {
    /// The text holds no block that could be one.
    #[error("no private key here; PEM of PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY is read")]
    NoKey,
    /// PKCS#8 under a passphrase, and none was given.
    #[error("the private key is encrypted: give its passphrase")]
    Encrypted,
    /// OpenSSL's own old encryption, by a single MD5.
    #[error("the private key is encrypted in OpenSSL's old way; convert it: openssl pkey -in OLD -out NEW")]
    LegacyEncryption,
    /// The passphrase does not open it.
    #[error("the passphrase does not open this private key")]
    WrongPassphrase,
    /// Not a private key in any encoding read.
    #[error("not a private key: {0}")]
    Malformed(String),
    /// A key, of a kind not used here.
    #[error(
        "{0} is not supported; there are RSA of 2048, 3072 and 4096 bits, P-256, P-384, P-521, Ed25519 and ML-DSA"
    )]
    Unsupported(String),
    /// Numbers that do not make a key, or halves that do not belong together.
    #[error("the private key is not sound: {0}")]
    Unsound(String),
    /// The library could not make one.
    #[error("the cryptographic library could not make a key of kind {0}")]
    Generation(KeyType),
}

/// Why a file gives no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The system did not let us read it.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// An error of the key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Why nothing was decrypted. RSA encryption says no more than that, on purpose: anyone who could tell
/// bad padding from a bad key could decrypt (Bleichenbacher 1998).
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecryptError {
    /// Only RSA keys decrypt.
    #[error("a key of kind {0} cannot decrypt")]
    NotRsa(KeyType),
    /// Not encrypted to this key.
    #[error("not encrypted to this key")]
    Failed,
}

/// Why there is no signature.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SignError {
    /// The deadline passed before the key answered; the same call may succeed later.
    #[error("the key did not answer before the deadline; retry with a later one")]
    Late,
    /// The key, or what holds it, cannot be reached; the same call may succeed later.
    #[error("the key cannot be reached: {0}")]
    Unavailable(String),
    /// The key refused or its library failed; asking again will not help.
    #[error("the key cannot sign this: {0}")]
    Failed(String),
}
