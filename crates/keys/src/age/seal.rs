//! Encryption and decryption of files in the age format.

use secrecy::SecretString;

use super::recipient::{Identity, Recipient};

/// Passphrase or recipients to which a file is encrypted.
#[derive(Clone, Debug)]
pub enum Seal {
    /// Encrypts the file with a key that is derived from the passphrase.
    Passphrase(SecretString),
    /// One or more recipients. Any one of their private keys decrypts the file.
    Recipients(Vec<Recipient>),
}

/// Passphrase or private keys with which a file is decrypted.
#[derive(Clone, Debug)]
pub enum Opening {
    /// A passphrase. Deriving the key blocks the calling thread for up to a few seconds.
    Passphrase(SecretString),
    /// Private keys. One of them must match a recipient of the file.
    Identities(Vec<Identity>),
}
