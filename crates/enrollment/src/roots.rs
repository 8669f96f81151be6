//! The trust anchors of enrolled hosts.

use std::sync::{Arc, PoisonError, RwLock};

/// PEM trust anchors that each enrolled host gets with its certificate. Clones share them, so that a new root of the server reaches
/// every host with its next certificate.
#[derive(Clone, Debug, Default)]
pub struct TrustAnchors(Arc<RwLock<String>>);

impl TrustAnchors {
    /// Returns the trust anchors, PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        // Code that holds the lock does not panic.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the trust anchors that hosts get with their next certificate.
    pub fn replace(&self, pem: String) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = pem;
    }
}

impl From<String> for TrustAnchors {
    fn from(pem: String) -> Self {
        Self(Arc::new(RwLock::new(pem)))
    }
}
