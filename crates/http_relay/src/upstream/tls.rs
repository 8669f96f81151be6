//! TLS options for the servers of one upstream, independent of the pool's policies: roots, server name and client certificate.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use outbound::Deadline;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509::HostOrIp;

use super::error::UpstreamConnectError;
use crate::cipher_suites::provider;

/// TLS options for the servers of an upstream. Equal if roots, server name and client certificate are equal.
#[derive(Clone)]
pub struct UpstreamTls(Arc<Settings>);

struct Settings {
    server: HostOrIp,
    roots: Vec<Vec<u8>>,
    client_chain: Vec<CertificateDer<'static>>,
    http1: TlsConnector,
    http2: TlsConnector,
}

impl UpstreamTls {
    /// Creates TLS options. Servers must present a certificate for `server` (also sent as SNI), signed below one of `roots` (DER).
    /// `certificate` is presented to servers that request one.
    ///
    /// # Errors
    /// The TLS library rejects a root or the certificate.
    pub fn new(
        server: HostOrIp,
        roots: Vec<Vec<u8>>,
        certificate: Option<Arc<CertifiedKey>>,
    ) -> Result<Self, rustls::Error> {
        let client_chain = certificate.as_ref().map(|own| own.cert.clone()).unwrap_or_default();
        let mut anchors = RootCertStore::empty();
        for root in &roots {
            anchors.add(CertificateDer::from(root.as_slice()))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(anchors);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from((*own).clone()))),
        };
        let (http1, http2) = connectors(config);
        Ok(Self(Arc::new(Settings { server, roots, client_chain, http1, http2 })))
    }

    /// Returns the server name that the certificates must contain.
    pub fn server(&self) -> &HostOrIp {
        &self.0.server
    }

    pub(super) fn connector(&self, http2: bool) -> &TlsConnector {
        if http2 { &self.0.http2 } else { &self.0.http1 }
    }

    /// Performs a TLS handshake over `stream` within `limit`. Offers the ALPN protocols `alpn` (RFC 7301), none if empty.
    ///
    /// # Errors
    /// [`UpstreamConnectError`]
    pub async fn connect(
        &self,
        stream: TcpStream,
        alpn: Vec<Vec<u8>>,
        limit: Duration,
    ) -> Result<TlsStream<TcpStream>, UpstreamConnectError> {
        let name = server_name(&self.0.server)?;
        let connecting = self.0.http1.with_alpn(alpn).connect(name, stream);
        let done = tokio::time::timeout(Deadline::within(limit).remaining(), connecting).await;
        done.map_err(|_| UpstreamConnectError::Late)?.map_err(UpstreamConnectError::Tls)
    }
}

/// Returns the connectors: HTTP/1.1 only, and HTTP/2 preferred.
pub(super) fn connectors(mut config: ClientConfig) -> (TlsConnector, TlsConnector) {
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let http1 = TlsConnector::from(Arc::new(config.clone()));
    config.alpn_protocols.insert(0, b"h2".to_vec());
    (http1, TlsConnector::from(Arc::new(config)))
}

pub(super) fn server_name(server: &HostOrIp) -> Result<ServerName<'static>, UpstreamConnectError> {
    match server {
        HostOrIp::Ip(address) => Ok(ServerName::from(*address)),
        HostOrIp::Dns(name) => ServerName::try_from(name.as_str().to_owned())
            .map_err(|error| UpstreamConnectError::Tls(std::io::Error::other(error))),
    }
}

impl PartialEq for UpstreamTls {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (&self.0, &other.0);
        Arc::ptr_eq(one, other)
            || one.server == other.server
                && one.roots == other.roots
                && one.client_chain == other.client_chain
    }
}

impl Eq for UpstreamTls {}

impl Hash for UpstreamTls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.server.hash(state);
    }
}

impl fmt::Debug for UpstreamTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamTls").field("server", &self.0.server).finish_non_exhaustive()
    }
}
