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

/// How the server listens.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where TLS is spoken, and how; port 0 takes a free one.
    pub tls: Option<(SocketAddr, TlsOptions)>,
    /// A Unix socket, readable and writable by its owner only, where the protocol is spoken without TLS.
    pub socket: Option<PathBuf>,
    /// Where the native protocol is spoken, over the same TLS.
    pub native: Option<SocketAddr>,
    /// A Unix socket for it, as [`Self::socket`].
    pub native_socket: Option<PathBuf>,
    /// Where other nodes of the same service ask, and who they are.
    pub nodes: Option<NodesOptions>,
    /// Whose clients there are; can be changed by [`Running::change_tenants`](super::Running::change_tenants).
    pub tenants: Vec<TenantOptions>,
    /// Connections at once over TLS, and as many over Unix sockets; more are closed. Some 50 KB each.
    pub connections_max: usize,
    /// Load balancers in front, whose PROXY protocol headers (version 2) name the client.
    pub trusted_proxies: TrustedProxies,
    /// For a client's first words, its ClientHello. A client that says nothing costs a slot that another needs.
    pub hello_timeout: Duration,
    /// For the rest of the TLS handshake.
    pub handshake_timeout: Duration,
    /// A TCP connection on which nothing was read, before it is closed.
    pub idle: Duration,
    /// The same of a Unix socket.
    pub socket_idle: Duration,
    /// What a signature is worth waiting for, from when its request was read: clients of the protocol say nothing of that,
    /// and wait 10 s.
    pub deadline: Duration,
    /// How long a key for session tickets seals; it opens for twice as long. Nothing is sealed when zero.
    pub ticket_life: Duration,
    /// Whether keys of security modules decrypt for tenants that may ([`TenantOptions::rsa_decrypt`]).
    pub rsa_decrypt: bool,
    /// Processors for signing.
    pub processors: usize,
    /// Which signatures are made in batches, where the processor can.
    pub batches: Batches,
    /// Writes a record of every signature; none is written without.
    pub records: Option<Recorder>,
}

/// Where other nodes ask: by the native protocol, over TLS of its own.
#[derive(Clone, Debug)]
pub struct NodesOptions {
    /// Port 0 takes a free one.
    pub address: SocketAddr,
    /// The node's own certificate, and the roots of the others'.
    pub tls: TlsOptions,
    /// Knows who is a node.
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
