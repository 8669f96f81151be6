//! Errors in the lookup and the storage of profiles.

use std::sync::Arc;

use store::StoreError;

/// Reason why a profile cannot be read or stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProfileError {
    /// The profile does not exist. The caller must list the profiles.
    #[error("unknown profile {0:?}")]
    Unknown(String),
    /// The profile is invalid. The caller must correct it.
    #[error("invalid profile: {0}")]
    Invalid(String),
    /// The profile was changed by another request. The caller must read it again.
    #[error("another request changed the profile {0:?}: read the profile again")]
    Stale(String),
    /// The stored profile cannot be parsed. The operator must correct it in the database or delete it.
    #[error("cannot read the stored profile {name:?}: {reason}")]
    Unreadable {
        /// Name of the profile.
        name: String,
        /// Reason why the profile cannot be parsed.
        reason: String,
    },
    /// An error of the database.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

impl From<StoreError> for ProfileError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}
