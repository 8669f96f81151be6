//! Who is to open a file, and what opens one.

use secrecy::SecretString;

use super::recipient::{Identity, Recipient};

/// Who is to open a file.
#[derive(Clone, Debug)]
pub enum Seal {
    /// A passphrase.
    Passphrase(SecretString),
    /// Anyone who has a key of one of these; one at least.
    Recipients(Vec<Recipient>),
}

/// The means to open a file.
#[derive(Clone, Debug)]
pub enum Opening {
    /// The passphrase. Up to some seconds of this thread.
    Passphrase(SecretString),
    /// Keys, any of which may fit.
    Identities(Vec<Identity>),
}
