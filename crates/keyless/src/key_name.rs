//! Identifiers of keys in requests.

use std::fmt;

use x509::SpkiHash;

use crate::wire::Ski;

/// Identifier of the key in a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyName {
    /// The subject key identifier (SKI).
    Ski(Ski),
    /// SHA-256 of the SubjectPublicKeyInfo.
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
