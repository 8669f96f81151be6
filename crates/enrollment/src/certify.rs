//! Issuing certificates for joining hosts.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use x509::GeneralName;

/// Reason why no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub enum CertifyError {
    /// The CA rejected the request. A retry does not help.
    #[error("the CA refuses to issue the certificate: {0}")]
    Refused(String),
    /// Temporary failure. A retry may succeed.
    #[error("the CA cannot issue the certificate now: {0}")]
    Unavailable(String),
}

/// A certificate that was issued to a joining host, with its chain.
#[derive(Clone, Debug)]
pub struct Certified {
    /// The certificate and its chain, PEM.
    pub chain_pem: String,
    /// End of validity, µs since 1970-01-01 UTC.
    pub not_after_us: i64,
}

/// An issuer of the certificates of agents or of nodes. The implementation decides the certificates' purpose and lifetime.
pub trait Certify: Send + Sync {
    /// Issues a certificate for the key of `spki` with these names. A repeated `idempotency_key` returns the same certificate.
    fn certify(
        &self,
        names: Vec<GeneralName>,
        spki: Vec<u8>,
        idempotency_key: String,
    ) -> BoxFuture<'_, Result<Certified, CertifyError>>;
}

/// Function that derives the lookup key of an identity, a SHA-256, from the URI in its certificate. By this key the server
/// recognizes the certificate.
pub type IdentityHasher = Arc<dyn Fn(&str) -> [u8; 32] + Send + Sync>;
