//! Settings of the listeners, and startup errors.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use inbound::TrustedProxies;
use rustls::sign::CertifiedKey;

use super::tls::TlsError;

/// Function that creates the router of the web console. The console calls the routes of the API and of the credential store
/// within this process.
pub type Console = fn(api: Router, credentials: Option<Router>) -> Router;

/// Settings of the server's listeners.
#[derive(Clone)]
pub struct ServerOptions {
    /// Address of the TLS listener. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// Address of the credential store's TLS listener; `None` disables it.
    pub credentials: Option<SocketAddr>,
    /// Address of the plain HTTP listener for CRLs, OCSP and http-01 responses; `None` disables it.
    pub public: Option<SocketAddr>,
    /// The web console over the API's routes; `None` disables it.
    pub console: Option<Console>,
    /// The server certificate; see [`server_certificate`](super::server_certificate).
    pub certificate: Arc<CertifiedKey>,
    /// Roots (DER) that client certificates must chain to. Empty: no client certificates are requested.
    pub client_roots: Vec<Vec<u8>>,
    /// Reverse proxies whose PROXY protocol header and `X-Forwarded-For` are trusted. A client certificate is accepted only from
    /// the TLS connection itself, never from a header that a proxy sends.
    pub trusted_proxies: TrustedProxies,
    /// Maximum connections of each listener, about 30 KiB each. A further connection evicts the one that has been idle the longest.
    pub connections_max: usize,
    /// Maximum connections of each listener from one address (for IPv6, one /64). Further connections are closed immediately.
    /// Default: `None`, which is an eighth of `connections_max`.
    pub connections_per_address_max: Option<usize>,
    /// Maximum connections of each listener with one client certificate. Further connections are closed immediately. Default:
    /// `None`, which is an eighth of `connections_max`.
    pub connections_per_certificate_max: Option<usize>,
    /// Maximum response bytes of each listener that clients have not read yet. One address may use half of this budget. Above it,
    /// requests get 503.
    pub answer_bytes_max: usize,
    /// Timeout of the TLS handshake. Default: 10 s.
    pub handshake_timeout: Duration,
    /// Timeout of a request head, from its first byte. For the first request of a connection, from the end of the handshake.
    /// Default: 10 s.
    pub head_timeout: Duration,
    /// Timeout of a request's whole body. Default: 30 s.
    pub body_timeout: Duration,
    /// Timeout after which an idle connection is closed. Default: 90 s. Does not apply to the credential store's listener, whose
    /// idle timeout is 600 s.
    pub idle_timeout: Duration,
    /// Timeout for a client that reads its response too slowly, or not at all. The connection is then closed. Default: 30 s.
    pub write_timeout: Duration,
    /// Timeout of requests in progress without any transfer; longer than any handler may take. Default: 180 s.
    pub stall_timeout: Duration,
    /// Timeout of requests in progress during shutdown. Default: 25 s.
    pub drain_timeout: Duration,
}

impl ServerOptions {
    /// Creates settings with limits for a control plane on a small machine.
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
        self.connections_per_address_max.unwrap_or_else(|| inbound::slots_per_address(self.connections_max))
    }

    pub(super) fn connections_per_certificate(&self) -> usize {
        self.connections_per_certificate_max
            .unwrap_or_else(|| inbound::slots_per_address(self.connections_max))
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

/// Reason why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is in use, or the process may not use it.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Address that could not be bound.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The certificate, its key, or a root is invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
}
