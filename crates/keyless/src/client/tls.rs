//! TLS to a key service: versions 1.2 and 1.3, with client and server certificates.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};

/// The client certificate and the trust anchors for servers.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// Client certificate with its key.
    pub certificate: Arc<CertifiedKey>,
    /// Trust anchors (DER) of the servers' certificates; no others are trusted.
    pub server_roots: Vec<Vec<u8>>,
}

impl ClientTls {
    /// Checks whether the TLS library accepts the options.
    ///
    /// # Errors
    /// A root is not a certificate.
    pub fn check(&self) -> Result<(), rustls::Error> {
        config(self).map(drop)
    }
}

/// Builds the TLS configuration. Session resumption is off: connections are long, and each must authenticate again.
pub(crate) fn config(tls: &ClientTls) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    for root in &tls.server_roots {
        roots.add(CertificateDer::from(root.clone()))?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12])?;
    let own = Arc::new(SingleCertAndKey::from(Arc::clone(&tls.certificate)));
    let mut config = builder.with_root_certificates(roots).with_client_cert_resolver(own);
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}
