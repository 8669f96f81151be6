//! The recipient of encrypted SCEP requests to a CA: an RSA key and its certificate.

use std::sync::Arc;

use keys::{PrivateKey, SignError};
use store::StoreError;
use x509::Certificate;

use crate::keystore::KeyStoreError;

/// The SCEP key of a CA with its certificate.
pub(super) struct Recipient {
    pub(super) certificate: Certificate,
    pub(super) key: PrivateKey,
}

/// Reason why no recipient is available.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum RecipientError {
    /// The CA issues no more certificates, and no earlier recipient exists.
    #[error("the CA {0} issues no certificates: it is retiring, retired, expired or not yet valid")]
    NotIssuing(String),
    /// The key cannot be decrypted.
    #[error("cannot open the SCEP key: {0}")]
    Key(#[from] KeyStoreError),
    /// Signing with the CA key failed.
    #[error("the CA key failed to sign: {0}")]
    Sign(#[from] SignError),
    /// The signed document is not a valid certificate.
    #[error("invalid certificate of the SCEP key: {0}")]
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
