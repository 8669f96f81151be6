//! The forward proxy that looks into TLS: clients send it CONNECT, and it shows them a leaf minted for the name they ask for.
//!
//! A connection's way: `connection` (HTTP to the proxy itself; `socks`; `transparent`, where its client knows of no proxy), `access` (who may), `connect` (what the client says
//! after CONNECT: TLS, whose ClientHello tells the name, or plain HTTP), `rules` (tunnel, reject, intercept, mirror), `mirror`
//! (what the server shows), the certificate store, `exchange` (one request), `requests` (what rules change in it), and what is `crate::http`'s: what a proxy must change in a request,
//! and the pool of upstreams.

mod access;
mod connect;
mod connection;
mod exchange;
mod metrics;
mod mirror;
mod page;
mod permitted;
mod refusals;
pub mod requests;
mod rules;
mod socks;
pub(crate) mod tls;
pub(crate) mod transparent;
mod way;

pub use crate::http::upstream::{BadParent, Parent, UpstreamPolicies, UpstreamPolicy, UpstreamWay};
pub use access::{AccessOptions, BadOwnTls, BadUsers, OwnTls, Token, Users};
pub use metrics::ProxyMetrics;
pub use rules::{Action, BadRule, Rules};
pub use transparent::TransparentOptions;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use keys::KeyError;
use outbound::resolve::{ResolveError, Resolver};
use rustls::pki_types::CertificateDer;
use tokio::sync::Semaphore;

use crate::certificate_store::{self, CertificateStore, Newcomers, SecondLevel};
use crate::clock::now;
use crate::doors::Doors;
use crate::http::upstream::{PoolOptions, Upstreams};
use crate::mint::{
    Authority, Intermediates, KeysByOwner, KeysOfLeaves, LEAF_KEY_LIFE, LeafKeys, MintError, Minter,
    RsaStock, VALIDITY_MAX,
};
use crate::minting;
use crate::permission::{self, BadPermission, Permission};

/// Users whose leaf keys are kept, of those that have their own: some 8 MiB. Of more, the one that asked the longest ago gets
/// another.
pub const USERS_MAX: u64 = 8_192;

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
    fn pool(&self) -> PoolOptions {
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

/// Why the proxy did not start.
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
    /// The first key for leaves.
    #[error("no key for leaves: {0}")]
    Key(#[from] KeyError),
    /// The TLS library.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// Upstreams could not be told from anybody else.
    #[error("there are no roots to hold upstreams against")]
    NoRoots,
    /// Its own TLS.
    #[error("clients cannot speak TLS to the proxy: {0}")]
    OwnTls(#[from] BadOwnTls),
    /// The system's generator of randomness.
    #[error("the system gives no randomness")]
    NoRandomness,
    /// The access log.
    #[error("the access log cannot be written: {0}")]
    AccessLog(io::Error),
    /// This machine's resolver.
    #[error("names cannot be resolved: {0}")]
    Resolver(#[from] ResolveError),
    /// The authority below the one given.
    #[error("no intermediate authority: {0}")]
    Intermediate(MintError),
    /// Who is asked before there is a leaf.
    #[error(transparent)]
    Permission(#[from] BadPermission),
    /// Leaves for others.
    #[error("leaves are not handed out: {0}")]
    Minting(#[from] minting::StartError),
}

/// A proxy that runs, until [`Running::stop`].
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where redirected connections come in.
    pub redirected: Vec<SocketAddr>,
    /// Where leaves are handed out, if that is an address.
    pub minting: Option<SocketAddr>,
    doors: Doors,
    store: CertificateStore,
    rules: requests::Live,
    reopen: requests::Reopen,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Listens; leaves stand below `authority`.
///
/// # Errors
/// [`StartError`]
pub async fn start(
    options: Options,
    authority: Authority,
    metrics: ProxyMetrics,
) -> Result<Running, StartError> {
    let doors = Doors::default();
    let stock = RsaStock::default();
    let (keys, users) = leaf_keys(&options, &stock)?;
    let resolver = Resolver::system()?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(
        options.upstream_roots.iter().map(|der| CertificateDer::from(der.as_slice())),
    );
    if roots.is_empty() {
        return Err(StartError::NoRoots);
    }
    let failed = |source| StartError::Bind { address: options.listen, source };
    let permission = Permission::new(
        options.permission.as_ref(),
        &resolver,
        options.new_names_per_minute,
        options.new_names_burst,
        &metrics.permission(),
    )?;
    let listener = inbound::listen(options.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let newcomers = Newcomers::new(options.new_names_per_minute, options.new_names_burst);
    let second_level = options.second_level.clone();
    let store = CertificateStore::with_second_level(options.store_octets_max, newcomers, second_level);
    metrics.watch(&store);
    doors.spawn(keep_keys(Arc::clone(&keys), options.leaf_key_life, doors.clone()));
    if let Some(level) = &options.second_level {
        doors.spawn(level.clone().keep(doors.stopping()));
    }
    let (minter, trusted) = minter(&options, authority, keys, &doors).await?;
    let handshake_timeout = options.handshake_timeout;
    let consumers = options.minting.as_ref().is_some_and(|minting| !minting.rsa_consumers.is_empty());
    if users.is_some() || consumers {
        doors.spawn(stock.clone().keep(doors.stopping()));
    }
    let tls = tls::Interception::new(minter.clone(), trusted, store.clone(), users, handshake_timeout)?;
    let minting = match options.minting.clone() {
        Some(minting) => {
            let (store, permission, profile) = (store.clone(), permission.clone(), minter.profile().into());
            let leaves = minting::Leaves { minter, profile, store, permission, stock };
            minting::start(minting, leaves, doors.clone(), metrics.minting()).await?.address
        }
        None => None,
    };
    let redirected = transparent::listen(&options.transparent)?;
    let own = [address].into_iter().chain(minting).chain(options.own_addresses.iter().copied());
    let own = own.chain(redirected.iter().map(|(_, address)| *address)).collect();
    let upstreams = Upstreams::new(&options.pool(), own, resolver, roots, doors.clone(), metrics.reuse())?;
    doors.spawn(upstreams.clone().sweep(doors.stopping()));
    let places = Arc::new(Semaphore::new(options.connections_max));
    let (rules, reopen) =
        (requests::Live::new(options.rules.clone(), &options.requests), requests::Reopen::default());
    let requests = requests::RequestLog::start(&options.requests, metrics.requests(), &doors, &reopen)
        .map_err(StartError::AccessLog)?;
    let access = access::Access::new(&options.access, &metrics.minting().revocation())?;
    if let Some(door) = access.door() {
        doors.spawn(Arc::clone(door.guarded()).keep(doors.stopping()));
    }
    let refusals = refusals::Refusals::new(options.auto_tunnel);
    let mirrors = mirror::Mirrors::new(&options, upstreams.clone(), metrics.clone());
    let proxy = connection::Proxy {
        options,
        mirrors,
        refusals,
        permission,
        address,
        access,
        tls,
        upstreams,
        metrics,
        doors: doors.clone(),
        rules: rules.clone(),
        requests,
    };
    let proxy = Arc::new(proxy);
    let mut running = Running { address, redirected: Vec::new(), minting, doors, store, rules, reopen };
    for (listener, address) in redirected {
        let host = transparent::Transparent(Arc::clone(&proxy));
        running.doors.open_sharing(listener, Arc::new(host), Arc::clone(&places));
        running.redirected.push(address);
    }
    running.doors.open_sharing(listener, proxy, places);
    Ok(running)
}

/// The keys of the process and, where they have their own, those of users.
fn leaf_keys(options: &Options, stock: &RsaStock) -> Result<(Arc<LeafKeys>, Option<KeysByOwner>), KeyError> {
    let (of_leaves, users) = match options.leaf_keys {
        KeysOfLeaves::ByUser => {
            let users = KeysByOwner::of_users(USERS_MAX, options.leaf_key_life, stock.clone());
            (KeysOfLeaves::Shared, Some(users))
        }
        of_leaves => (of_leaves, None),
    };
    Ok((Arc::new(LeafKeys::new()?.of_leaves(of_leaves)), users))
}

/// Who makes leaves, and the authority that clients have to trust.
async fn minter(
    options: &Options,
    authority: Authority,
    keys: Arc<LeafKeys>,
    doors: &Doors,
) -> Result<(Minter, Authority), StartError> {
    let Some(life) = options.intermediate else {
        return Ok((Minter::new(authority.clone(), keys, options.leaf_validity), authority));
    };
    let intermediates = Intermediates::new(authority.clone(), life);
    let first = intermediates.make(now()).await.map_err(StartError::Intermediate)?;
    let minter = Minter::new(first, keys, options.leaf_validity);
    let stop = doors.stopping();
    let (renewed, kept) = (minter.clone(), intermediates);
    doors.spawn(async move { kept.keep(renewed, stop).await });
    Ok((minter, authority))
}

async fn keep_keys(keys: Arc<LeafKeys>, life: Duration, doors: Doors) {
    keys.keep(life, doors.stopping()).await;
}

impl Running {
    /// The leaves held.
    #[must_use]
    pub fn store(&self) -> &CertificateStore {
        &self.store
    }

    /// Other rules from the next request and the next CONNECT on, of connections that are there too.
    pub fn change_rules(
        &self,
        names: Rules,
        rules: requests::RequestRules,
        secrets: Option<Arc<dyn requests::Secrets>>,
    ) {
        self.rules.change(names, rules, secrets);
    }

    /// Opens the access log anew and begins another recording: whoever moved files away has them.
    pub fn reopen(&self) {
        self.reopen.all();
    }

    /// Takes no more connections, lets those there are come to their end for `grace`, and ends. False when some were cut off.
    pub async fn stop(self, grace: Duration) -> bool {
        self.doors.close(grace).await
    }
}
