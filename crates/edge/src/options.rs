//! Options of the terminator: listeners, certificates, upstreams.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http_relay::access_log::{AccessLog, LoggedQuery};
use ipnet::IpNet;

use super::client_auth::ClientAuth;
use super::routes::Routes;
use super::staples::StapleOptions;

/// Options of the terminator: listener, certificates, routes, limits and timeouts.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address that the terminator listens on. Port 0 takes a free port. Default: 0.0.0.0:8443.
    pub listen: SocketAddr,
    /// Folder of certificate chains (`NAME.pem`, leaf first) and their OCSP responses (`NAME.ocsp`, DER).
    pub certificates: PathBuf,
    /// The file name of the default certificate, which clients without a server name get. With [`Self::unknown_names_get_default`],
    /// clients also get it for a name without a certificate. Default: none.
    pub default_certificate: Option<String>,
    /// Whether clients that send an unknown name get the default certificate. Default: false, which sends them the alert
    /// unrecognized_name (RFC 6066 section 3).
    pub unknown_names_get_default: bool,
    /// How clients authenticate by certificates (mutual TLS). Default: `None`; no client certificate is requested.
    pub client_auth: Option<ClientAuth>,
    /// How OCSP responses are fetched for chains that name a responder and have no response in the folder. Default: `None`, which
    /// disables fetching.
    pub staples: Option<StapleOptions>,
    /// Routes from server names to upstreams. The terminator does not start without routes.
    pub routes: Routes,
    /// File of session ticket keys, shared by all terminators that serve the same names. Default: `None`, which generates keys in
    /// memory.
    pub ticket_keys_file: Option<PathBuf>,
    /// Time for which a ticket key from memory encrypts new tickets. It decrypts tickets for twice as long. Default: 12 h.
    pub ticket_key_life: Duration,
    /// Interval at which the folder and the ticket keys are read again. Default: 10 s.
    pub reload: Duration,
    /// Maximum connections; each needs about 100 KB of memory. The terminator closes further connections immediately. Default:
    /// 16,384.
    pub connections_max: usize,
    /// Maximum connections of one client address (of IPv6, one /64). Default: `None`, which is an eighth of
    /// [`Self::connections_max`], so that one client cannot exclude all others. A load balancer counts as one address.
    pub connections_per_address_max: Option<usize>,
    /// Timeout of a TLS handshake, from accept to completion, including the signature. Default: 10 s.
    pub handshake_timeout: Duration,
    /// Timeout of a signature. Default: 3 s.
    pub sign_timeout: Duration,
    /// Timeout of connecting to an upstream: name resolution and TCP together. Default: 5 s.
    pub connect_timeout: Duration,
    /// Idle timeout of a connection. For HTTP requests: of a body. Default: 5 min.
    pub idle: Duration,
    /// Timeout of a request's header, from its first byte. Default: 10 s.
    pub head_timeout: Duration,
    /// Idle timeout of a client connection before its first request, and with HTTP/1 before each next request. Default: 75 s.
    pub keep_alive: Duration,
    /// Timeout of a response's header, from the end of the request, or while the upstream accepts no more of the request. Default:
    /// 60 s.
    pub response_timeout: Duration,
    /// Maximum connections to upstreams for HTTP requests, including idle ones. Default: 4,096.
    pub upstream_connections_max: usize,
    /// Maximum connections to one upstream for HTTP requests. Default: `None`, which permits half of
    /// [`Self::upstream_connections_max`] if there are several upstreams, so that a slow one leaves slots for the others. With one
    /// upstream, `None` permits all.
    pub upstream_per_host_max: Option<usize>,
    /// Maximum idle upstream connections. The least recently used one is closed first. Default: 512.
    pub upstream_idle_max: usize,
    /// Idle timeout of an upstream connection; then the terminator closes it. Default: 30 s.
    pub upstream_idle: Duration,
    /// Networks of trusted load balancers. The terminator reads the client's address from their PROXY protocol headers (version 2),
    /// and forwards their header fields about the client. Default: none.
    pub trusted_proxies: Vec<IpNet>,
    /// The destination of the access log. Default: `None`, which writes no access log.
    pub access_log: Option<AccessLog>,
    /// Whether access log lines contain the query of the URL. Default: omitted.
    pub access_log_query: LoggedQuery,
}

impl Options {
    /// Returns the maximum number of connections of one client address.
    pub(crate) fn per_address(&self) -> usize {
        self.connections_per_address_max.unwrap_or(inbound::slots_per_address(self.connections_max))
    }

    /// Returns the maximum number of connections to one upstream of these routes.
    pub(crate) fn connections_per_upstream(&self, routes: &Routes) -> usize {
        let share = if routes.has_several_upstreams() { 2 } else { 1 };
        self.upstream_per_host_max.unwrap_or((self.upstream_connections_max / share).max(1))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 8443)),
            certificates: PathBuf::new(),
            default_certificate: None,
            unknown_names_get_default: false,
            client_auth: None,
            staples: None,
            routes: Routes::default(),
            ticket_keys_file: None,
            ticket_key_life: Duration::from_secs(12 * 3_600),
            reload: Duration::from_secs(10),
            connections_max: 16_384,
            connections_per_address_max: None,
            handshake_timeout: Duration::from_secs(10),
            sign_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(5),
            idle: Duration::from_secs(300),
            head_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(75),
            response_timeout: Duration::from_secs(60),
            upstream_connections_max: 4_096,
            upstream_per_host_max: None,
            upstream_idle_max: 512,
            upstream_idle: Duration::from_secs(30),
            trusted_proxies: Vec::new(),
            access_log: None,
            access_log_query: LoggedQuery::Omitted,
        }
    }
}
