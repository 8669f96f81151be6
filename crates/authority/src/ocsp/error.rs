//! Errors of the OCSP responder.

use std::sync::Arc;

use keys::SignError;
use store::StoreError;

use crate::keystore::KeyStoreError;
use crate::tree::CaError;

/// Reason why no OCSP response was created.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OcspError {
    /// The CA does not exist or cannot be read.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// Signing with the key of the responder or of the CA failed.
    #[error("cannot sign an OCSP response: {0}")]
    Sign(#[from] SignError),
    /// The key of the responder is not available.
    #[error("cannot open the key of the OCSP responder: {0}")]
    Key(#[from] KeyStoreError),
    /// Another node is creating the responder. The caller must retry.
    #[error("the OCSP responder of {0} is being created: try again")]
    NotReady(String),
    /// The certificate of the responder is faulty.
    #[error("invalid certificate of the OCSP responder: {0}")]
    Certificate(String),
    /// An error of the database.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

impl From<StoreError> for OcspError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}
