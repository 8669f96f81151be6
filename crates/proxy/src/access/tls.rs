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

use crate::revocation::{BadLists, LoadedCrls, RevocationGuard, RevocationLists, RevocationMetrics};

/// What the proxy shows clients that speak TLS to it, on the port where it is also spoken to in the clear.
#[derive(Clone, Debug)]
pub struct OwnTls {
    /// Its own certificate, which has nothing to do with leaves.
    pub certificate: Arc<CertifiedKey>,
    /// Trust anchors for client certificates, DER; no certificates are requested if empty.
    pub client_roots: Vec<Vec<u8>>,
    /// The CRLs.
    pub revoked: Option<RevocationLists>,
    /// Whether who speaks in the clear is closed out.
    pub only: bool,
}

/// Why it cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub enum BadOwnTls {
    /// The TLS library refuses the key, a root, or its own defaults.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// Roots that certificates cannot be held against.
    #[error("certificates of clients cannot be verified: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// Of certificates that were revoked.
    #[error(transparent)]
    LoadedCrls(#[from] BadLists),
}

/// The user that a client certificate names.
pub(crate) struct CertifiedUser {
    pub(crate) name: Arc<str>,
    pub(crate) uris: Vec<Arc<str>>,
}

/// Accepts TLS connections to the proxy itself.
pub(crate) struct OwnTlsAcceptor {
    tls: Arc<RevocationGuard>,
    pub(crate) only: bool,
}

impl fmt::Debug for OwnTlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnTlsAcceptor").field("only", &self.only).finish_non_exhaustive()
    }
}

impl OwnTlsAcceptor {
    /// `or_else`: whether a client without a certificate may show something else.
    pub(super) fn new(own: &OwnTls, or_else: bool, metrics: RevocationMetrics) -> Result<Self, BadOwnTls> {
        let lists = LoadedCrls::of(own.revoked.as_ref())?;
        let config = config_of(own, or_else, &lists.ders)?;
        let again = own.clone();
        let build = Box::new(move |crls: &[Vec<u8>]| {
            config_of(&again, or_else, crls).map_err(|error| error.to_string())
        });
        let tls = RevocationGuard::new(config, lists, own.revoked.clone(), build, (metrics, "access"));
        Ok(Self { tls: Arc::new(tls), only: own.only })
    }

    /// What holds clients against lists.
    pub(crate) fn guarded(&self) -> &Arc<RevocationGuard> {
        &self.tls
    }

    /// Handshakes; the caller sets the timeout. Returns the certificate that the client showed, and the user it names: its subject, or
    /// its fingerprint, and its URI names.
    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<(TlsStream<S>, Option<CertifiedUser>, Option<CertificateDer<'static>>)> {
        let stream = TlsAcceptor::from(self.tls.tls()).accept(stream).await?;
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
}

fn config_of(own: &OwnTls, or_else: bool, crls: &[Vec<u8>]) -> Result<ServerConfig, BadOwnTls> {
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
        // A client's certificate is looked at each time, so that one that has ended lets nobody in.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}
