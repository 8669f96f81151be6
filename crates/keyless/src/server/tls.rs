//! TLS of the listener: 1.2 and 1.3, both sides with certificates.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use tokio_util::sync::CancellationToken;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No trust anchors: no client could connect.
    #[error("there is no root for client certificates")]
    NoRoots,
    /// A root cannot be used.
    #[error("a root for client certificates cannot be used: {0}")]
    BadRoot(rustls::Error),
    /// The verifier cannot be made.
    #[error("client certificates cannot be verified: {0}")]
    Verifier(#[from] VerifierBuilderError),
    /// The versions do not fit the library.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
}

/// The server certificate and the trust anchors for clients.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// The server's own.
    pub certificate: Arc<CertifiedKey>,
    /// Roots (DER) below which clients' certificates stand; no others count. A client's certificate is for clientAuth, or
    /// says nothing of what it is for.
    pub client_roots: Vec<Vec<u8>>,
    /// CRLs (DER) of these. With any, a client whose certificate's authority has none is refused; one that is past its time
    /// counts as long as there is no newer.
    pub client_crls: Vec<Vec<u8>>,
}

impl TlsOptions {
    /// Whether anyone who these let in is let in by `other` as well.
    pub(super) fn admits_no_less(&self, other: &Self) -> bool {
        self.client_crls == other.client_crls
            && self.client_roots.iter().all(|root| other.client_roots.contains(root))
    }
}

/// TLS of each protocol: they differ in what is said to be spoken (ALPN, RFC 7301).
pub(super) struct Configs {
    pub(super) keyless: Arc<ServerConfig>,
    pub(super) native: Arc<ServerConfig>,
}

/// The present server certificate and trust anchors.
pub(super) struct Presented {
    pub(super) configs: Configs,
    pub(super) options: TlsOptions,
    /// Cancelled when clients who came in by this may not come in any more.
    pub(super) dismissed: CancellationToken,
}

impl Presented {
    pub(super) fn new(configs: Configs, options: TlsOptions, stopping: &CancellationToken) -> Self {
        Self { configs, options, dismissed: stopping.child_token() }
    }
}

pub(super) fn configs(options: &TlsOptions) -> Result<Configs, TlsError> {
    let keyless = mutual_tls(options)?;
    let mut native = keyless.clone();
    native.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Configs { keyless: Arc::new(keyless), native: Arc::new(native) })
}

/// Where both sides have certificates. Sessions are not resumed: a resumed one would let a client in whose certificate has
/// ended, and connections are long.
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
