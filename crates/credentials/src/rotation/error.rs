//! Reasons why a value is not rotated.

use crate::{CredentialError, Refusal};

/// Why a value was not made again.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RotateError {
    /// No rotation policy covers the credential.
    #[error("The value was set by hand, so it cannot be generated again. Set a new value, or generate one.")]
    ByHand,
    /// The hook did not agree.
    #[error("The hook did not agree: {0}")]
    Hook(String),
    /// Too many values wait for hooks to read them.
    #[error("Too many values wait to be read by hooks. It is tried again.")]
    Full,
    /// Something that an authority signed.
    #[error("{name}, which it signed: {why}")]
    Follower {
        /// Its name.
        name: String,
        /// Why it was not made again.
        why: String,
    },
    /// Since it began nothing is to be changed any more.
    #[error("Nothing is to be changed: the store is read-only.")]
    ReadOnly,
    /// Anything else.
    #[error(transparent)]
    Other(#[from] CredentialError),
}

impl RotateError {
    /// Whether trying again within minutes may help.
    pub(super) fn heals(&self) -> bool {
        match self {
            Self::ByHand => false,
            Self::Hook(_) | Self::Full | Self::Follower { .. } | Self::ReadOnly => true,
            Self::Other(error) => {
                matches!(error.refusal(), Refusal::Internal | Refusal::Unavailable | Refusal::Full)
            }
        }
    }
}
