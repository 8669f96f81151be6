//! Reasons why there is no OCSP response.

use std::sync::Arc;

use keys::SignError;
use store::StoreError;

use crate::keystore::KeyStoreError;
use crate::tree::CaError;

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OcspError {
    /// No such CA, or the database.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The responder's or the CA's key did not sign.
    #[error("a key did not sign: {0}")]
    Sign(#[from] SignError),
    /// The responder's key cannot be had.
    #[error("the responder's key: {0}")]
    Key(#[from] KeyStoreError),
    /// Another node is making the responder; try again.
    #[error("the responder of {0} is being made: try again")]
    NotReady(String),
    /// The responder's certificate is faulty.
    #[error("the responder's certificate: {0}")]
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
