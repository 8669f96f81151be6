//! How the server listens, and why it did not start.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use inbound::TrustedProxies;
use rustls::sign::CertifiedKey;

use super::tls::TlsError;

/// Makes the pages for browsers from the API's routes and those of the credential store, which they ask in this process.
pub type Console = fn(api: Router, credentials: Option<Router>) -> Router;

/// How the server listens.
#[derive(Clone)]
pub struct ServerOptions {
    /// Where TLS is spoken. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the credential store is spoken to over TLS; nowhere when `None`.
    pub credentials: Option<SocketAddr>,
    /// Where plain HTTP is spoken: CRLs, OCSP, http-01 answers; nowhere when `None`.
    pub public: Option<SocketAddr>,
    /// The pages for browsers, made over the API's routes; none when `None`.
    pub console: Option<Console>,
    /// The certificate presented; see [`server_certificate`](super::server_certificate).
    pub certificate: Arc<CertifiedKey>,
    /// Roots (DER) below which client certificates are accepted; none are asked for when empty.
    pub client_roots: Vec<Vec<u8>>,
    /// Proxies in front, whose PROXY protocol header and `X-Forwarded-For` are believed. Their client certificates are not: a client
    /// with a certificate speaks TLS to this server itself.
    pub trusted_proxies: TrustedProxies,
    /// Connections at once of each listener, some 30 KiB each. For one more, the connection is closed that has waited the longest for
    /// a request.
    pub connections_max: usize,
    /// Of these from one address (of IPv6, one /64); more are closed at once. Default: `None`, which is an eighth.
    pub connections_per_address_max: Option<usize>,
    /// Of these by one client certificate; more are closed at once. Default: `None`, which is an eighth.
    pub connections_per_certificate_max: Option<usize>,
    /// Bytes of answers of each listener that clients have not read yet, of one address half; further requests are answered 503.
    pub answer_bytes_max: usize,
    /// For the TLS handshake.
    pub handshake_timeout: Duration,
    /// For a request's head, from its first byte. For the first request of a connection, from the handshake.
    pub head_timeout: Duration,
    /// For a request's whole body.
    pub body_timeout: Duration,
    /// A connection without a request, before it is closed.
    pub idle_timeout: Duration,
    /// For a client that reads nothing of its answer, or too little, before its connection is closed.
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
            console: None,
            certificate,
            client_roots: Vec::new(),
            trusted_proxies: TrustedProxies::default(),
            connections_max: 4_096,
            connections_per_address_max: None,
            connections_per_certificate_max: None,
            answer_bytes_max: 256 << 20,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(90),
            write_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(180),
            drain_timeout: Duration::from_secs(25),
        }
    }
}

impl ServerOptions {
    pub(super) fn per_address(&self) -> usize {
        self.connections_per_address_max.unwrap_or_else(|| inbound::address_share(self.connections_max))
    }

    pub(super) fn per_certificate(&self) -> usize {
        self.connections_per_certificate_max.unwrap_or_else(|| inbound::address_share(self.connections_max))
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
    /// The address is in use, or not permitted.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The certificate, its key, or a root.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
