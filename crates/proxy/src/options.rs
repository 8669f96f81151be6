//! How the proxy listens, what it decides and what it is limited to.

use std::net::SocketAddr;
use std::time::Duration;

use http_relay::upstream::{PoolOptions, UpstreamPolicies};
use ipnet::IpNet;

use crate::access::AccessOptions;
use crate::certificate_store::{self, SecondLevel};
use crate::mint::{KeysOfLeaves, LEAF_KEY_LIFE, VALIDITY_MAX};
use crate::redirect::TransparentOptions;
use crate::rules::Rules;
use crate::{minting, permission, requests};

/// How the proxy listens, what it decides and what it is limited to.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where connections come in that the host's firewall redirects.
    pub transparent: TransparentOptions,
    /// Where this process listens besides: no client is connected to these.
    pub own_addresses: Vec<SocketAddr>,
    /// Who may ask: all when empty.
    pub clients: Vec<IpNet>,
    /// Who may, of these: all when nobody is named.
    pub access: AccessOptions,
    /// What becomes of a connection, by the name it is for.
    pub rules: Rules,
    /// What becomes of requests, and what is left behind of them.
    pub requests: requests::Options,
    /// How long leaves hold.
    pub leaf_validity: Duration,
    /// Which leaves stand over one key.
    pub leaf_keys: KeysOfLeaves,
    /// How long new leaves stand over the same key.
    pub leaf_key_life: Duration,
    /// Octets of leaves in memory.
    pub store_octets_max: u64,
    /// What keeps leaves behind memory, and is shared with other proxies.
    pub second_level: Option<SecondLevel>,
    /// Names a minute that one client may have minted which nobody had before, and how many at once.
    pub new_names_per_minute: u32,
    /// The latter.
    pub new_names_burst: u32,
    /// Roots in DER that upstreams are held against.
    pub upstream_roots: Vec<Vec<u8>>,
    /// What differs for certain upstreams, and by which way they are reached.
    pub upstreams: UpstreamPolicies,
    /// How long it is remembered that a client refused a leaf, whose connections to that name are passed on then; `None`: not at all.
    pub auto_tunnel: Option<Duration>,
    /// Connections of clients at once; more are closed at once.
    pub connections_max: usize,
    /// Connections to upstreams at once, those that wait for the next request included.
    pub upstream_connections_max: usize,
    /// Of those, to one host and port.
    pub upstream_per_host_max: usize,
    /// Of all, such as wait for the next request; the one that waits the longest is closed for another. Below
    /// [`Self::upstream_per_host_max`], so that those of other names of a host leave it places.
    pub upstream_idle_max: usize,
    /// How long one waits.
    pub upstream_idle: Duration,
    /// For the ClientHello after CONNECT, and for the handshake.
    pub handshake_timeout: Duration,
    /// For a request's head, from its first octet or from the end of the one before.
    pub head_timeout: Duration,
    /// For an upstream's address, connection and handshake.
    pub connect_timeout: Duration,
    /// For the head of an answer, from when the request was sent.
    pub response_timeout: Duration,
    /// A body or a tunnel on which nothing came, before it is cut off; a client's HTTP/2 connection without requests, before it is
    /// closed.
    pub idle: Duration,
    /// How long an authority below the one given holds that is made here, its key in memory alone; none: leaves stand below
    /// the one given.
    pub intermediate: Option<Duration>,
    /// Who is asked before there is a leaf; everything is permitted when nobody is.
    pub permission: Option<permission::Options>,
    /// How leaves are handed to others, if they are.
    pub minting: Option<minting::Options>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 3128)),
            transparent: TransparentOptions::default(),
            own_addresses: Vec::new(),
            clients: Vec::new(),
            access: AccessOptions::default(),
            rules: Rules::default(),
            requests: requests::Options::default(),
            leaf_validity: Duration::from_secs(7 * 86_400).min(VALIDITY_MAX),
            leaf_keys: KeysOfLeaves::Shared,
            leaf_key_life: LEAF_KEY_LIFE,
            store_octets_max: certificate_store::OCTETS_MAX,
            second_level: None,
            new_names_per_minute: 600,
            new_names_burst: 2_000,
            upstream_roots: Vec::new(),
            upstreams: UpstreamPolicies::default(),
            auto_tunnel: None,
            connections_max: 8_192,
            upstream_connections_max: 8_192,
            upstream_per_host_max: 1_024,
            upstream_idle_max: 512,
            upstream_idle: Duration::from_secs(60),
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
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
    pub(crate) fn pool(&self) -> PoolOptions {
        PoolOptions {
            policies: self.upstreams.clone(),
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
