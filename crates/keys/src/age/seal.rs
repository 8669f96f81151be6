//! How a file is encrypted, and how it is opened.

use secrecy::SecretString;

use super::recipient::{Identity, Recipient};

/// How a file is encrypted.
#[derive(Clone, Debug)]
pub enum Seal {
    /// To a passphrase.
    Passphrase(SecretString),
    /// To one or more recipients. Any one of their private keys opens the file.
    Recipients(Vec<Recipient>),
}

/// How a file is opened.
#[derive(Clone, Debug)]
pub enum Opening {
    /// With a passphrase. Takes up to some seconds on the calling thread.
    Passphrase(SecretString),
    /// With private keys, of which one must fit.
    Identities(Vec<Identity>),
}
