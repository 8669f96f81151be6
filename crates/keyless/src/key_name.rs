//! How a request identifies its key.

use std::fmt;

use x509::SpkiHash;

use crate::wire::Ski;

/// How a request identifies its key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyName {
    /// By its subject key identifier.
    Ski(Ski),
    /// By the SHA-256 of its public key.
    Spki(SpkiHash),
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ski(ski) => ski.fmt(f),
            Self::Spki(spki) => spki.fmt(f),
        }
    }
}
