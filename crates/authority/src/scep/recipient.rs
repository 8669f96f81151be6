//! The recipient of SCEP requests to an authority: an RSA key and its certificate.

use std::sync::Arc;

use keys::{PrivateKey, SignError};
use store::StoreError;
use x509::Certificate;

use crate::keystore::KeyStoreError;

/// An authority's SCEP key, ready.
pub(super) struct Recipient {
    pub(super) certificate: Certificate,
    pub(super) key: PrivateKey,
}

/// Why there is none.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum RecipientError {
    /// Its authority does not issue any more, and there was none before.
    #[error("{0} does not issue")]
    NotIssuing(String),
    /// The key cannot be opened.
    #[error("the SCEP key: {0}")]
    Key(#[from] KeyStoreError),
    /// The authority's key did not sign.
    #[error("the key of the authority: {0}")]
    Sign(#[from] SignError),
    /// What was signed is no certificate.
    #[error("the certificate of the SCEP key: {0}")]
    Faulty(String),
    /// An error of the database.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

impl From<StoreError> for RecipientError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}
