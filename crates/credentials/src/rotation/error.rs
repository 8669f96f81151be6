//! Reasons why a value is not rotated.

use crate::{CredentialError, Refusal};

/// Reason why a value was not rotated.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RotateError {
    /// No rotation policy covers the credential.
    #[error("The value was set by hand, so it cannot be regenerated. Set a new value, or generate one.")]
    ByHand,
    /// The hook rejected the rotation.
    #[error("The hook did not approve the rotation: {0}")]
    Hook(String),
    /// Too many values are waiting for hooks to read them.
    #[error("Too many values are waiting for hooks to read them. The rotation is retried.")]
    Full,
    /// A certificate that the CA signed could not be regenerated.
    #[error("The certificate {name}, signed by this CA, could not be regenerated: {why}")]
    Follower {
        /// Name of the certificate.
        name: String,
        /// Reason why the certificate could not be regenerated.
        why: String,
    },
    /// Read-only mode was set during the rotation.
    #[error("The credential cannot be rotated: the store is in read-only mode.")]
    ReadOnly,
    /// Any other error.
    #[error(transparent)]
    Other(#[from] CredentialError),
}

impl RotateError {
    /// Returns whether a retry within minutes may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::ByHand => false,
            Self::Hook(_) | Self::Full | Self::Follower { .. } | Self::ReadOnly => true,
            Self::Other(error) => {
                matches!(error.refusal(), Refusal::Internal | Refusal::Unavailable | Refusal::Full)
            }
        }
    }
}
