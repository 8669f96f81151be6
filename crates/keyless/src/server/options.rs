//! Settings of the server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use inbound::TrustedProxies;
use keys::Batches;

use super::tls::TlsOptions;
use crate::records::Recorder;
use crate::routing::Router;
use crate::tenant::TenantOptions;

/// Options of the server's listeners and limits.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address and options of the Keyless protocol over TLS; port 0 takes a free port.
    pub tls: Option<(SocketAddr, TlsOptions)>,
    /// Unix socket for the Keyless protocol without TLS, accessible by its owner only.
    pub socket: Option<PathBuf>,
    /// Address of the native protocol, with the same TLS options.
    pub native: Option<SocketAddr>,
    /// Unix socket for the native protocol, like [`Self::socket`].
    pub native_socket: Option<PathBuf>,
    /// Listener for other nodes of the same service.
    pub nodes: Option<NodesOptions>,
    /// The tenants; [`Running::change_tenants`](super::Running::change_tenants) replaces them.
    pub tenants: Vec<TenantOptions>,
    /// Maximum connections over TLS, and as many over Unix sockets; further ones are closed. About 50 KB each.
    pub connections_max: usize,
    /// Trusted load balancers, whose PROXY protocol headers (version 2) contain the client's address.
    pub trusted_proxies: TrustedProxies,
    /// Timeout of a ClientHello. It is short, because a silent client uses a slot that others need.
    pub hello_timeout: Duration,
    /// Timeout of the rest of the TLS handshake.
    pub handshake_timeout: Duration,
    /// Idle timeout of a TCP connection.
    pub idle: Duration,
    /// Idle timeout of a Unix socket connection.
    pub socket_idle: Duration,
    /// Default deadline of a signature, from the arrival of its request. Clients of the Keyless protocol send no deadline, and wait
    /// 10 s.
    pub deadline: Duration,
    /// Time for which a session ticket key seals tickets. The key opens tickets for twice as long. Zero disables sealing.
    pub ticket_life: Duration,
    /// Whether keys of security modules may perform RSA decryption for tenants with [`TenantOptions::rsa_decrypt`].
    pub rsa_decrypt: bool,
    /// Number of processors for signing.
    pub processors: usize,
    /// Key types that are signed in batches, if the processor supports it.
    pub batches: Batches,
    /// Recorder of all signatures; `None` disables records.
    pub records: Option<Recorder>,
}

/// Options of the listener for other nodes: the native protocol with separate TLS options.
#[derive(Clone, Debug)]
pub struct NodesOptions {
    /// Address of the listener; port 0 takes a free port.
    pub address: SocketAddr,
    /// The node's own certificate, and the roots of the other nodes.
    pub tls: TlsOptions,
    /// Router with the current members, for requests that need another node.
    pub router: Router,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tls: None,
            socket: None,
            native: None,
            native_socket: None,
            nodes: None,
            tenants: Vec::new(),
            connections_max: 4_096,
            trusted_proxies: TrustedProxies::default(),
            hello_timeout: Duration::from_secs(2),
            handshake_timeout: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            socket_idle: Duration::from_secs(3_600),
            deadline: Duration::from_secs(5),
            ticket_life: Duration::from_secs(12 * 3_600),
            rsa_decrypt: false,
            processors: std::thread::available_parallelism().map_or(2, usize::from),
            batches: Batches::default(),
            records: None,
        }
    }
}
