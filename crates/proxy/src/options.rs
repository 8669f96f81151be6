//! Options of the proxy: listeners, decisions, limits.

use std::net::SocketAddr;
use std::time::Duration;

use http_relay::upstream::{AddressRule, PoolOptions, UpstreamPolicies};
use ipnet::IpNet;
use outbound::guard::Guard;

use crate::access::AccessOptions;
use crate::certificate_store::{self, SecondLevel};
use crate::holds::Holds;
use crate::hooks::HookOptions;
use crate::mint::{LEAF_KEY_LIFE, LeafKeySharing, VALIDITY_MAX};
use crate::policy::Policy;
use crate::recent::RecentRequests;
use crate::redirect::TransparentOptions;
use crate::rules::Rules;
use crate::sessions::DatabaseListenerOptions;
use crate::{minting, permission, requests};

/// Options of the proxy: listeners, access, rules, limits and timeouts.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address that the proxy listens on. Port 0 takes a free port. Default: 127.0.0.1:3128.
    pub listen: SocketAddr,
    /// Transparent proxy: listeners for connections that the host's firewall redirects. Default: none.
    pub transparent: TransparentOptions,
    /// Listeners for PostgreSQL clients, each with its server. Default: none.
    pub postgresql: Vec<DatabaseListenerOptions>,
    /// Listeners for Redis clients, each with its server. Default: none.
    pub redis: Vec<DatabaseListenerOptions>,
    /// Other addresses that this process listens on. The proxy opens no connection to these addresses for a client. Default: none.
    pub own_addresses: Vec<SocketAddr>,
    /// Networks of clients that may use the proxy. Default: empty, which allows all networks.
    pub clients: Vec<IpNet>,
    /// How clients authenticate. Default: authentication is not required.
    pub access: AccessOptions,
    /// Whether a connection is intercepted, mirrored, tunneled or rejected, by the host's name. Default: all are intercepted.
    pub rules: Rules,
    /// Policy that decides which identity may send which request. Default: none; all requests are permitted.
    pub policy: Policy,
    /// The requests that rules of the policy hold, and their approvals. Default: `None`; requests that a rule holds are refused
    /// immediately.
    pub holds: Option<Holds>,
    /// Buffer of the most recent requests, for display to operators. Default: `None`; requests are not kept.
    pub recent: Option<RecentRequests>,
    /// Hooks, in the order in which requests pass them. Responses pass them in the reverse order. Default: none.
    pub hooks: Vec<HookOptions>,
    /// Rules on requests, the access log, and recordings. Default: none of these.
    pub requests: requests::Options,
    /// Validity of leaf certificates. Default: 7 days.
    pub leaf_validity: Duration,
    /// Scope in which leaf certificates share a key. Default: all leaf certificates that are minted during one key's lifetime.
    pub leaf_keys: LeafKeySharing,
    /// Time for which new leaf certificates are issued for the same key. Default: 1 hour.
    pub leaf_key_life: Duration,
    /// Maximum bytes of leaf certificates in memory. Default: 64 MiB.
    pub store_octets_max: u64,
    /// Second-level store of leaf certificates behind the memory cache, which other proxies may share. Default: none.
    pub second_level: Option<SecondLevel>,
    /// Rate limit of each client: new names per minute. A name is new if no leaf for it exists yet. Default: 600.
    pub new_names_per_minute: u32,
    /// Burst of [`Self::new_names_per_minute`]: new names that a client may request in a short time. Default: 2,000.
    pub new_names_burst: u32,
    /// Trust anchors (DER) for the certificates of upstreams. Default: none; the proxy does not start without any.
    pub upstream_roots: Vec<Vec<u8>>,
    /// Settings of individual upstreams: trust, client certificates and parent proxies. Default: none; the proxy connects to all
    /// upstreams directly and verifies them.
    pub upstreams: UpstreamPolicies,
    /// Addresses that the proxy never connects to, for any client. Default: link-local addresses and metadata addresses of clouds.
    pub guard: Guard,
    /// Time for which the proxy tunnels a client's connections to a host after the client has rejected a leaf certificate for that
    /// host. Default: `None`, which disables it.
    pub auto_tunnel: Option<Duration>,
    /// Maximum connections of clients. At the maximum, a new connection evicts the connection that has been silent the longest. If
    /// no connection is silent, the proxy closes the new one. Default: 8,192.
    pub connections_max: usize,
    /// Maximum connections of one address (of IPv6, one /64). Default: `None`, which is an eighth of [`Self::connections_max`], so
    /// that one client cannot exclude all others.
    pub connections_per_address_max: Option<usize>,
    /// Networks of trusted load balancers, whose PROXY protocol headers (version 2) contain the client's address. Default: none.
    pub trusted_proxies: Vec<IpNet>,
    /// Maximum connections to upstreams, including idle ones. Default: 8,192.
    pub upstream_connections_max: usize,
    /// Maximum connections to one host and port, including idle ones. Default: 1,024.
    pub upstream_per_host_max: usize,
    /// Maximum idle upstream connections. The least recently used one is closed first. Keep it below
    /// [`Self::upstream_per_host_max`], so that idle connections under other names of a host leave slots free. Default: 512.
    pub upstream_idle_max: usize,
    /// Idle timeout of an upstream connection; then the proxy closes it. Default: 60 s.
    pub upstream_idle: Duration,
    /// Timeouts of a client's TLS: for the ClientHello after CONNECT, and for the rest of the handshake. Default: 10 s.
    pub handshake_timeout: Duration,
    /// Timeout of a request's header, from its first byte. For the first request on a connection to the proxy itself, the timeout
    /// starts with the connection. Default: 10 s.
    pub head_timeout: Duration,
    /// Idle timeout of a client's HTTP/1 connection before its next request; after CONNECT and TLS, also before the first request.
    /// Default: 75 s.
    pub keep_alive: Duration,
    /// Timeout of connecting to an upstream: name resolution, TCP and TLS together. Default: 10 s.
    pub connect_timeout: Duration,
    /// Timeout of a response's header, from the end of the request. Default: 5 min.
    pub response_timeout: Duration,
    /// Idle timeout of a body, of a tunnel, and of a client's HTTP/2 connection without requests. Default: 10 min.
    pub idle: Duration,
    /// Lifetime of an intermediate CA that signs the leaf certificates, with a key that exists in memory only. Default: `None`,
    /// which signs with the configured CA.
    pub intermediate: Option<Duration>,
    /// External service that decides whether a leaf certificate may be minted. Default: `None`, which permits all.
    pub permission: Option<permission::Options>,
    /// Options for issuing leaf certificates to other TLS servers. Default: `None`, which disables it.
    pub minting: Option<minting::Options>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 3128)),
            transparent: TransparentOptions::default(),
            postgresql: Vec::new(),
            redis: Vec::new(),
            own_addresses: Vec::new(),
            clients: Vec::new(),
            access: AccessOptions::default(),
            rules: Rules::default(),
            policy: Policy::default(),
            holds: None,
            recent: None,
            hooks: Vec::new(),
            requests: requests::Options::default(),
            leaf_validity: Duration::from_secs(7 * 86_400).min(VALIDITY_MAX),
            leaf_keys: LeafKeySharing::Shared,
            leaf_key_life: LEAF_KEY_LIFE,
            store_octets_max: certificate_store::BYTES_MAX,
            second_level: None,
            new_names_per_minute: 600,
            new_names_burst: 2_000,
            upstream_roots: Vec::new(),
            upstreams: UpstreamPolicies::default(),
            guard: Guard::default(),
            auto_tunnel: None,
            connections_max: 8_192,
            connections_per_address_max: None,
            trusted_proxies: Vec::new(),
            upstream_connections_max: 8_192,
            upstream_per_host_max: 1_024,
            upstream_idle_max: 512,
            upstream_idle: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(75),
            connect_timeout: Duration::from_secs(10),
            response_timeout: Duration::from_secs(300),
            idle: Duration::from_secs(600),
            intermediate: None,
            permission: None,
            minting: None,
        }
    }
}

impl Options {
    /// Returns the maximum number of connections of one client address.
    pub(crate) fn per_address(&self) -> usize {
        self.connections_per_address_max.unwrap_or(inbound::slots_per_address(self.connections_max))
    }

    pub(crate) fn pool(&self, address_rule: AddressRule) -> PoolOptions {
        PoolOptions {
            policies: self.upstreams.clone(),
            guard: self.guard,
            address_rule,
            connections_max: self.upstream_connections_max,
            per_host_max: self.upstream_per_host_max,
            idle_max: self.upstream_idle_max,
            idle_life: self.upstream_idle,
            connect_timeout: self.connect_timeout,
            response_timeout: self.response_timeout,
            idle: self.idle,
        }
    }
}
