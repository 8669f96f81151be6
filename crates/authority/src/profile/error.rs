//! Reasons why a profile cannot be read or stored.

use std::sync::Arc;

use store::StoreError;

/// Why a profile cannot be read or stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProfileError {
    /// Caller: list the profiles.
    #[error("there is no profile {0:?}")]
    Unknown(String),
    /// Caller: correct the request.
    #[error("the profile makes no sense: {0}")]
    Invalid(String),
    /// Caller: read it again and decide again.
    #[error("another request changed the profile {0:?}: read it again")]
    Stale(String),
    /// Operator: correct it in the database, or delete it.
    #[error("the profile {name:?} in the database cannot be read: {reason}")]
    Unreadable {
        /// Which.
        name: String,
        /// Why.
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
