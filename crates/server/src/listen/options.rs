//! How the server listens, and why it did not start.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use rustls::sign::CertifiedKey;

use super::tls::TlsError;

/// How the server listens.
#[derive(Clone)]
pub struct ServerOptions {
    /// Where TLS is spoken. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the credential store is spoken to over TLS; nowhere when `None`.
    pub credentials: Option<SocketAddr>,
    /// Where plain HTTP is spoken: CRLs, OCSP, http-01 answers; nowhere when `None`.
    pub public: Option<SocketAddr>,
    /// The certificate presented; see [`server_certificate`](super::server_certificate).
    pub certificate: Arc<CertifiedKey>,
    /// Roots (DER) below which client certificates are accepted; none are asked for when empty.
    pub client_roots: Vec<Vec<u8>>,
    /// Proxies in front, whose `X-Forwarded-For` is believed. Their client certificates are not: whoever uses mutual TLS
    /// speaks to this server itself.
    pub trusted_proxies: Vec<IpNet>,
    /// Connections at once over all listeners; more wait in the system's queue. Some 30 KiB each.
    pub connections_max: usize,
    /// Of these from one address; more are closed at once. An office of agents behind one address fits.
    pub connections_per_address_max: usize,
    /// For the TLS handshake.
    pub handshake_timeout: Duration,
    /// For a request's head on HTTP/1.1, which includes the wait for a next request; between two pings on HTTP/2.
    pub head_timeout: Duration,
    /// For a request's whole body.
    pub body_timeout: Duration,
    /// A connection without a request, before it is closed.
    pub idle_timeout: Duration,
    /// A write without progress, before the connection is given up.
    pub write_timeout: Duration,
    /// Requests under way of which nothing moves; longer than any handler may take.
    pub stall_timeout: Duration,
    /// At the stop, for requests under way.
    pub drain_timeout: Duration,
}

impl ServerOptions {
    /// Limits that suit a control plane on a small machine.
    #[must_use]
    pub fn new(listen: SocketAddr, certificate: Arc<CertifiedKey>) -> Self {
        Self {
            listen,
            credentials: None,
            public: None,
            certificate,
            client_roots: Vec::new(),
            trusted_proxies: Vec::new(),
            connections_max: 4_096,
            connections_per_address_max: 1_024,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(90),
            write_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(180),
            drain_timeout: Duration::from_secs(25),
        }
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("listen", &self.listen)
            .field("public", &self.public)
            .field("client_roots", &self.client_roots.len())
            .finish_non_exhaustive()
    }
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Somebody else listens there, or it is not permitted.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The certificate, its key, or a root.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
