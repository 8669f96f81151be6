//! TLS between clients and the proxy itself, with certificates of clients.

use std::sync::Arc;
use std::{fmt, io};

use rustls::crypto::aws_lc_rs::{self, Ticketer};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use x509::GeneralName;

use crate::revocation::{BadCrls, LoadedCrls, RevocationGuard, RevocationLists, RevocationMetrics};

/// TLS options of the proxy itself, on the port that also accepts unencrypted connections.
#[derive(Clone, Debug)]
pub struct OwnTls {
    /// Certificate of the proxy itself, independent of the leaves for intercepted hosts.
    pub certificate: Arc<CertifiedKey>,
    /// Trust anchors (DER) of client certificates; if empty, no certificates are requested.
    pub client_roots: Vec<Vec<u8>>,
    /// CRLs for client certificates; `None` disables the revocation check.
    pub revoked: Option<RevocationLists>,
    /// Whether unencrypted connections are rejected.
    pub only: bool,
}

/// Reason why TLS to the proxy cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ProxyTlsError {
    /// The TLS library rejects the key, a trust anchor, or its own default settings.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The verifier of client certificates cannot be created.
    #[error("cannot set up the verification of client certificates: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// The CRLs cannot be read or parsed.
    #[error(transparent)]
    LoadedCrls(#[from] BadCrls),
}

/// The user that a client certificate names.
pub(crate) struct CertifiedUser {
    pub(crate) name: Arc<str>,
    pub(crate) uris: Vec<Arc<str>>,
}

/// A client's TLS stream, with the user that its certificate names, and the certificate.
pub(crate) type AcceptedClient<S> = (TlsStream<S>, Option<CertifiedUser>, Option<CertificateDer<'static>>);

/// Acceptor of TLS connections to the proxy itself.
pub(crate) struct ProxyTlsAcceptor {
    tls: Arc<RevocationGuard>,
    pub(crate) only: bool,
}

impl fmt::Debug for ProxyTlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyTlsAcceptor").field("only", &self.only).finish_non_exhaustive()
    }
}

impl ProxyTlsAcceptor {
    /// Creates the acceptor. With `or_else`, a client without a certificate may authenticate by another method.
    pub(super) fn new(
        own: &OwnTls,
        or_else: bool,
        metrics: RevocationMetrics,
    ) -> Result<Self, ProxyTlsError> {
        let lists = LoadedCrls::of(own.revoked.as_ref())?;
        let config = config_of(own, or_else, &lists.ders)?;
        let own_tls = own.clone();
        let build = Box::new(move |crls: &[Vec<u8>]| {
            config_of(&own_tls, or_else, crls).map_err(|error| error.to_string())
        });
        let tls = RevocationGuard::new(config, lists, own.revoked.clone(), build, (metrics, "access"));
        Ok(Self { tls: Arc::new(tls), only: own.only })
    }

    /// Returns the guard that checks clients against CRLs.
    pub(crate) fn guarded(&self) -> &Arc<RevocationGuard> {
        &self.tls
    }

    /// Performs a handshake with a client whose protocol is not HTTP. `alpn`: ALPN names of the protocol; if
    /// empty, names that the client offers are ignored.
    pub(crate) async fn accept_as<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        alpn: &[&[u8]],
    ) -> io::Result<AcceptedClient<S>> {
        let mut config = (*self.tls.tls()).clone();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        accept(Arc::new(config), stream).await
    }

    /// Performs a handshake; the caller sets the timeout. Returns the client's certificate, and the user that the certificate
    /// names: subject or fingerprint, and URI names.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<AcceptedClient<S>> {
        accept(self.tls.tls(), stream).await
    }
}

async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    config: Arc<ServerConfig>,
    stream: S,
) -> io::Result<AcceptedClient<S>> {
    let stream = TlsAcceptor::from(config).accept(stream).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let shown = shown.cloned().map(CertificateDer::into_owned);
    let user = match &shown {
        None => None,
        Some(shown) => {
            let certificate = x509::Certificate::parse(shown).map_err(io::Error::other)?;
            let name = match certificate.subject.text.as_str() {
                "" => certificate.fingerprint.to_string().into(),
                subject => Arc::from(subject),
            };
            let uris = certificate.subject_alt_names.iter().filter_map(|name| match name {
                GeneralName::Uri(uri) => Some(Arc::from(uri.as_str())),
                _ => None,
            });
            Some(CertifiedUser { name, uris: uris.collect() })
        }
    };
    Ok((stream, user, shown))
}

fn config_of(own: &OwnTls, or_else: bool, crls: &[Vec<u8>]) -> Result<ServerConfig, ProxyTlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match own.client_roots.is_empty() {
        true => builder.with_no_client_auth(),
        false => {
            let mut roots = RootCertStore::empty();
            for root in &own.client_roots {
                roots.add(CertificateDer::from(root.as_slice()))?;
            }
            let crls = crls.iter().map(|crl| CertificateRevocationListDer::from(crl.clone()));
            let mut verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                .with_crls(crls)
                .only_check_end_entity_revocation();
            if or_else {
                verifier = verifier.allow_unauthenticated();
            }
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let shown = SingleCertAndKey::from((*own.certificate).clone());
    let mut config = builder.with_cert_resolver(Arc::new(shown));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if own.client_roots.is_empty() {
        config.ticketer = Ticketer::new()?;
        config.send_tls13_tickets = 1;
    } else {
        // Without session resumption, each connection verifies the certificate, so that an expired one is rejected.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}
