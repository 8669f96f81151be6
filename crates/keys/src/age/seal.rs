//! How a file is encrypted, and how it is opened.

use secrecy::SecretString;

use super::recipient::{Identity, Recipient};

/// What a file is encrypted to.
#[derive(Clone, Debug)]
pub enum Seal {
    /// A passphrase.
    Passphrase(SecretString),
    /// One or more recipients. Any one of their private keys decrypts the file.
    Recipients(Vec<Recipient>),
}

/// What a file is decrypted with.
#[derive(Clone, Debug)]
pub enum Opening {
    /// A passphrase. Deriving the key blocks the calling thread for up to a few seconds.
    Passphrase(SecretString),
    /// Private keys. One of them must match a recipient of the file.
    Identities(Vec<Identity>),
}
