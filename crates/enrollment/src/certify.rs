//! Certification of joining hosts.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use x509::GeneralName;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertifyError {
    /// The authority says no; the same again will not help.
    #[error("the authority does not certify it: {0}")]
    Refused(String),
    /// Later, perhaps.
    #[error("the authority cannot certify it just now: {0}")]
    Unavailable(String),
}

/// A certificate.
#[derive(Clone, Debug)]
pub struct Certified {
    /// The certificate and its chain, PEM.
    pub chain_pem: String,
    /// End of its validity, µs.
    pub not_after_us: i64,
}

/// Signs the certificates of agents, or of nodes: what they are good for and how long is up to it.
pub trait Certify: Send + Sync {
    /// A certificate for the key of `spki` with these names. The same `idempotency_key` gets the same one.
    fn certify(
        &self,
        names: Vec<GeneralName>,
        spki: Vec<u8>,
        idempotency_key: String,
    ) -> BoxFuture<'_, Result<Certified, CertifyError>>;
}

/// The SHA-256 by which the server's door knows a certificate with a URI again.
pub type IdentityKey = Arc<dyn Fn(&str) -> [u8; 32] + Send + Sync>;
