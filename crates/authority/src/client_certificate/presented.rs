//! The certificate chain of a TLS client before the revocation check.

use std::fmt;
use std::sync::Arc;

/// The chain that a TLS client presented and the handshake verified, leaf first. Only
/// [`ClientCertificates::verify`](super::ClientCertificates::verify) can read its contents.
#[derive(Clone)]
pub struct PresentedChain(Arc<[Box<[u8]>]>);

impl PresentedChain {
    /// Creates a chain from certificates in DER, leaf first; `None` if there are none.
    pub fn new<D: AsRef<[u8]>>(ders: impl IntoIterator<Item = D>) -> Option<Self> {
        let ders: Arc<[Box<[u8]>]> = ders.into_iter().map(|der| der.as_ref().into()).collect();
        (!ders.is_empty()).then_some(Self(ders))
    }

    /// Returns the SHA-256 of the leaf, for rate limits by certificate. It does not identify the client.
    #[must_use]
    pub fn leaf_sha256(&self) -> [u8; 32] {
        *x509::Fingerprint::of(&self.0[0]).as_bytes()
    }

    pub(super) fn ders(&self) -> &[Box<[u8]>] {
        &self.0
    }
}

impl fmt::Debug for PresentedChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PresentedChain").field(&self.0.len()).finish()
    }
}
