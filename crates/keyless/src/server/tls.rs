//! TLS of the listeners: versions 1.2 and 1.3, with client and server certificates.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use tokio_util::sync::CancellationToken;

/// Reason why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// There are no trust anchors, so no client could connect.
    #[error("no trust anchor for client certificates is configured")]
    NoRoots,
    /// A trust anchor is invalid.
    #[error("invalid trust anchor for client certificates: {0}")]
    BadRoot(rustls::Error),
    /// The verifier of client certificates cannot be created.
    #[error("cannot set up the verification of client certificates: {0}")]
    Verifier(#[from] VerifierBuilderError),
    /// The TLS library does not support the protocol versions.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
}

/// The server certificate and the trust anchors for clients.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Server certificate with its key.
    pub certificate: Arc<CertifiedKey>,
    /// Trust anchors (DER) of client certificates; no others are trusted. The extended key usage of a client certificate, if
    /// present, must include clientAuth.
    pub client_roots: Vec<Vec<u8>>,
    /// CRLs (DER) of the clients' issuers. If there are any, a client is refused when its issuer has no CRL. An outdated CRL
    /// remains valid until there is a newer one.
    pub client_crls: Vec<Vec<u8>>,
}

impl TlsOptions {
    /// Returns whether `other` accepts every client that these options accept.
    pub(super) fn accepts_subset_of(&self, other: &Self) -> bool {
        self.client_crls == other.client_crls
            && self.client_roots.iter().all(|root| other.client_roots.contains(root))
    }
}

/// TLS configurations by protocol; they differ in the ALPN protocol (RFC 7301).
pub(super) struct TlsConfigs {
    pub(super) keyless: Arc<ServerConfig>,
    pub(super) native: Arc<ServerConfig>,
}

/// The current server certificate and trust anchors.
pub(super) struct Presented {
    pub(super) configs: TlsConfigs,
    pub(super) options: TlsOptions,
    /// Cancelled when clients that connected with these options must authenticate again.
    pub(super) superseded: CancellationToken,
}

impl Presented {
    pub(super) fn new(configs: TlsConfigs, options: TlsOptions, stopping: &CancellationToken) -> Self {
        Self { configs, options, superseded: stopping.child_token() }
    }
}

pub(super) fn configs(options: &TlsOptions) -> Result<TlsConfigs, TlsError> {
    let keyless = mutual_tls(options)?;
    let mut native = keyless.clone();
    native.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConfigs { keyless: Arc::new(keyless), native: Arc::new(native) })
}

/// Builds a configuration with client and server certificates. Session resumption is off: it would accept a client whose
/// certificate has expired, and connections are long.
///
/// # Errors
/// [`TlsError`]
pub fn mutual_tls(options: &TlsOptions) -> Result<ServerConfig, TlsError> {
    if options.client_roots.is_empty() {
        return Err(TlsError::NoRoots);
    }
    let mut roots = RootCertStore::empty();
    for root in &options.client_roots {
        roots.add(CertificateDer::from(root.clone())).map_err(TlsError::BadRoot)?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let crls = options.client_crls.iter().map(|crl| CertificateRevocationListDer::from(crl.clone()));
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .with_crls(crls)
        .only_check_end_entity_revocation()
        .build()?;
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12])?;
    let mut config = builder
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&options.certificate))));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
