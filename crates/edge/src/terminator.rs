//! Shared state of all connections of the terminator.

use std::sync::Arc;
use std::time::Duration;

use http_relay::access_log::AccessLogger;
use http_relay::upstream::Upstreams;
use inbound::ServiceTasks;
use ipnet::IpNet;
use outbound::resolve::Resolver;
use s2n_tls::config::Config;
use s2n_tls::connection::Connection;
use s2n_tls_tokio::TlsStream;
use tokio::net::TcpStream;

use super::client_auth::ClientAuthenticator;
use super::flight::Flight;
use super::metrics::EdgeMetrics;
use super::routes::LiveRoutes;

/// State that all requests share.
pub(super) struct RequestService {
    pub(super) upstreams: Upstreams,
    pub(super) access_log: AccessLogger,
    pub(super) tasks: ServiceTasks,
    /// Networks of trusted proxies, which send the address of the original client.
    pub(super) trusted: Vec<IpNet>,
    pub(super) head_timeout: Duration,
    pub(super) keep_alive: Duration,
}

/// State that all connections share.
pub(super) struct Terminator {
    pub(super) config: Config,
    pub(super) routes: LiveRoutes,
    pub(super) request_service: RequestService,
    /// Set if clients authenticate by certificates.
    pub(super) clients: Option<Arc<ClientAuthenticator>>,
    pub(super) resolver: Resolver,
    pub(super) metrics: EdgeMetrics,
    pub(super) handshake_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) idle: Duration,
}

/// A client's connection after its handshake.
pub(super) type Stream = TlsStream<Flight<TcpStream>, Connection>;
