//! TLS to the servers of one upstream, apart from the policies of the pool: whom to believe, as whom, and what to show.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use outbound::Deadline;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use x509::HostOrIp;

use super::connect::server_name;
use super::error::NoConnection;
use super::parent::Link;
use super::policy::{Compiled, UpstreamPolicy, UpstreamWay, compiled};

/// TLS to the servers of an upstream. Equal where it believes, asks for and shows the same.
#[derive(Clone)]
pub struct UpstreamTls(Arc<Inner>);

struct Inner {
    server: HostOrIp,
    roots: Vec<Vec<u8>>,
    shown: Vec<CertificateDer<'static>>,
    compiled: Compiled,
}

impl UpstreamTls {
    /// Servers have to show a certificate for `server`, the name that they are asked for (SNI), below one of `roots` (DER).
    /// `certificate` is shown to those that ask for one.
    ///
    /// # Errors
    /// When the TLS library refuses a root or the certificate.
    pub fn new(
        server: HostOrIp,
        roots: Vec<Vec<u8>>,
        certificate: Option<Arc<CertifiedKey>>,
    ) -> Result<Self, rustls::Error> {
        let shown = certificate.as_ref().map(|own| own.cert.clone()).unwrap_or_default();
        let policy = UpstreamPolicy { roots: roots.clone(), certificate, ..UpstreamPolicy::default() };
        let compiled = compiled(&policy, &Arc::new(RootCertStore::empty()), &UpstreamWay::Direct)?;
        Ok(Self(Arc::new(Inner { server, roots, shown, compiled })))
    }

    /// The name in the certificates of its servers.
    pub fn server(&self) -> &HostOrIp {
        &self.0.server
    }

    pub(super) fn connector(&self, http2: bool) -> &TlsConnector {
        if http2 { &self.0.compiled.http2 } else { &self.0.compiled.http1 }
    }

    /// TLS over `stream`, within `limit`. Offers the protocols `alpn` (RFC 7301), none where it is empty.
    ///
    /// # Errors
    /// [`NoConnection`]
    pub async fn connect(
        &self,
        stream: TcpStream,
        alpn: Vec<Vec<u8>>,
        limit: Duration,
    ) -> Result<Link, NoConnection> {
        let name = server_name(&self.0.server)?;
        let connecting = self.0.compiled.http1.with_alpn(alpn).connect(name, stream);
        let done = tokio::time::timeout(Deadline::within(limit).remaining(), connecting).await;
        let stream = done.map_err(|_| NoConnection::Late)?.map_err(NoConnection::Tls)?;
        Ok(Link::Tls(Box::new(stream)))
    }
}

impl PartialEq for UpstreamTls {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (&self.0, &other.0);
        Arc::ptr_eq(one, other)
            || one.server == other.server && one.roots == other.roots && one.shown == other.shown
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
