//! Errors in the creation and the lookup of CRLs.

use std::sync::Arc;

use store::StoreError;

use crate::tree::CaError;

/// Reason why no CRL is available.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CrlError {
    /// The CA does not exist or cannot be read.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// Signing with the CA key failed.
    #[error("the CA key failed to sign: {0}")]
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
