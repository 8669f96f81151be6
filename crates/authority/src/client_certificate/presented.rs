//! What a TLS client presented, before it is verified.

use std::fmt;
use std::sync::Arc;

/// The chain that a TLS client presented and the handshake verified, leaf first. Its bytes are for
/// [`ClientCertificates::verify`](super::ClientCertificates::verify) alone.
#[derive(Clone)]
pub struct PresentedChain(Arc<[Box<[u8]>]>);

impl PresentedChain {
    /// Of certificates in DER, leaf first; `None` without any.
    pub fn new<D: AsRef<[u8]>>(ders: impl IntoIterator<Item = D>) -> Option<Self> {
        let ders: Arc<[Box<[u8]>]> = ders.into_iter().map(|der| der.as_ref().into()).collect();
        (!ders.is_empty()).then_some(Self(ders))
    }

    /// The SHA-256 of the leaf, for limits by certificate: it says nothing of who the client is.
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
