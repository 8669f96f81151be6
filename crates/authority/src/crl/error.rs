//! Reasons why there is no CRL.

use std::sync::Arc;

use store::StoreError;

use crate::tree::CaError;

/// Why there is no CRL.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CrlError {
    /// No such CA, or the database.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The CA's key did not sign.
    #[error("the key of the authority: {0}")]
    Sign(#[from] keys::SignError),
    /// An error of the database.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

impl From<StoreError> for CrlError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}
