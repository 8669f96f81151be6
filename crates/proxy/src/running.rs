//! Starts, reconfigures and stops the proxy.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http_relay::access_log::Observer;
use http_relay::clock::now;
use http_relay::upstream::{AddressRule, Upstreams};
use inbound::{Acceptor, OriginLimit, ServiceTasks, Slots, TrustedProxies, WhenFull};
use keys::{KeyError, RsaStock};
use outbound::resolve::Resolver;
use rustls::pki_types::CertificateDer;

use crate::access::{Token, Users};
use crate::budgets::Budgets;
use crate::certificate_store::{CertificateStore, NewNameLimit};
use crate::hooks::Hooks;
use crate::lease_keeper::LeaseKeeper;
use crate::leases::IdentityLeases;
use crate::metrics::ProxyMetrics;
use crate::mint::{Authority, Intermediates, KeysByOwner, LeafKeySharing, LeafKeys, Minter};
use crate::options::Options;
use crate::permission::Permission;
use crate::policy::Policy;
use crate::postgresql::PostgresqlServer;
use crate::proxy::Proxy;
use crate::redis::RedisServer;
use crate::replay::Replays;
use crate::rules::{Action, Rules};
use crate::sessions::{self, DatabaseListener, SessionHandler};
use crate::start_error::StartError;
use crate::{access, minting, mirror, redirect, refusals, requests, tls, transparent};

/// Maximum users with their own leaf keys in memory; 8,192 users need about 8 MiB. Beyond the maximum, the least recently active
/// user gets a new key.
pub const USERS_MAX: u64 = 8_192;

/// Number of RSA keys generated in advance. This number of new users or consumers can get an RSA leaf without waiting for a key.
const RSA_STOCK: usize = 16;

/// A running proxy. It runs until [`Running::stop`].
pub struct Running {
    /// Address of the listener, with the actual port if port 0 was configured.
    pub address: SocketAddr,
    /// Addresses of the listeners for redirected connections.
    pub redirected: Vec<SocketAddr>,
    /// Addresses of the listeners for PostgreSQL sessions.
    pub postgresql: Vec<SocketAddr>,
    /// Addresses of the listeners for Redis sessions.
    pub redis: Vec<SocketAddr>,
    /// Address of the listener for consumers of leaves, if it is a TCP listener.
    pub minting: Option<SocketAddr>,
    tasks: ServiceTasks,
    store: CertificateStore,
    rules: requests::LiveRules,
    upstreams: Upstreams,
    reopen: requests::ReopenSignals,
    access: Arc<access::Access>,
    leases: Option<LeaseKeeper>,
    proxy: Weak<Proxy>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

fn start_log(
    options: &Options,
    metrics: &ProxyMetrics,
    tasks: &ServiceTasks,
    reopen: &requests::ReopenSignals,
) -> Result<requests::RequestLog, StartError> {
    let recent = options.recent.clone().map(|recent| -> Arc<dyn Observer> { Arc::new(recent) });
    requests::RequestLog::start(&options.requests, recent, metrics.requests(), tasks, reopen)
}

/// Starts the proxy; leaves are issued by `authority`.
///
/// # Errors
/// [`StartError`]
#[crate::boxed]
pub async fn start(
    options: Options,
    authority: Authority,
    metrics: ProxyMetrics,
) -> Result<Running, StartError> {
    let tasks = ServiceTasks::default();
    let stock = RsaStock::new(RSA_STOCK);
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
    let name_limit = NewNameLimit::new(options.new_names_per_minute, options.new_names_burst);
    let second_level = options.second_level.clone();
    let store = CertificateStore::with_second_level(options.store_octets_max, name_limit, second_level);
    metrics.watch(&store);
    tasks.spawn(rotate_leaf_keys(Arc::clone(&keys), options.leaf_key_life, tasks.clone()));
    if let Some(level) = &options.second_level {
        tasks.spawn(level.clone().keep(tasks.stopping()));
    }
    let (minter, trusted) = minter(&options, authority, keys, &tasks).await?;
    let handshake_timeout = options.handshake_timeout;
    let consumers = options.minting.as_ref().is_some_and(|minting| !minting.rsa_consumers.is_empty());
    if users.is_some() || consumers {
        let (stock, stop) = (stock.clone(), tasks.stopping());
        tasks.spawn(async move {
            let _live = telemetry::tasks::guard("leaf-rsa-stock");
            stop.run_until_cancelled(stock.keep()).await;
        });
    }
    let tls = tls::Interception::new(minter.clone(), trusted, store.clone(), users, handshake_timeout)?;
    let minting = match options.minting.clone() {
        Some(minting) => {
            let (store, permission, profile) = (store.clone(), permission.clone(), minter.profile().into());
            let leaves = minting::LeafSource { minter, profile, store, permission, stock };
            minting::start(minting, leaves, tasks.clone(), metrics.minting()).await?.address
        }
        None => None,
    };
    let redirected = redirect::listen(&options.transparent)?;
    let postgresql = sessions::listen(&options.postgresql)?;
    let redis = sessions::listen(&options.redis)?;
    let own = [address].into_iter().chain(minting).chain(options.own_addresses.iter().copied());
    let own = own.chain(redirected.iter().map(|(_, address)| *address));
    let own = own.chain(postgresql.iter().chain(&redis).map(|one| one.address)).collect();
    let rules = requests::LiveRules::new(options.rules.clone(), options.policy.clone(), &options.requests);
    let pool = options.pool(address_rule(&rules));
    let revocation = metrics.minting().revocation();
    let access = Arc::new(access::Access::new(&options.access, &resolver, &revocation)?);
    let hooks = Hooks::new(&options.hooks, &resolver)?;
    let upstreams = Upstreams::new(&pool, own, resolver, roots, tasks.clone(), metrics.reuse())?;
    tasks.spawn(upstreams.clone().sweep(tasks.stopping()));
    let slots = Slots::limited(options.connections_max, OriginLimit::PerNetwork(options.per_address()))
        .behind(TrustedProxies::new(&options.trusted_proxies));
    let reopen = requests::ReopenSignals::default();
    let requests = start_log(&options, &metrics, &tasks, &reopen)?;
    if let Some(tls_acceptor) = access.tls_acceptor() {
        tasks.spawn(Arc::clone(tls_acceptor.guarded()).keep(tasks.stopping()));
    }
    let refusals = refusals::Refusals::new(options.auto_tunnel);
    let mirrors = mirror::MirrorCache::new(&options, upstreams.clone(), metrics.clone());
    let leases = options.requests.leases.clone().map(IdentityLeases::new);
    let proxy = Proxy {
        options,
        mirrors,
        refusals,
        permission,
        address,
        access: Arc::clone(&access),
        budgets: Budgets::default(),
        tls,
        upstreams: upstreams.clone(),
        metrics,
        tasks: tasks.clone(),
        rules: rules.clone(),
        requests,
        leases: leases.clone(),
        hooks,
    };
    let proxy = Arc::new(proxy);
    let leases = leases.map(|leases| LeaseKeeper::start(leases, rules.clone()));
    let mut running = Running {
        address,
        redirected: Vec::new(),
        postgresql: Vec::new(),
        redis: Vec::new(),
        minting,
        tasks,
        store,
        rules,
        upstreams,
        reopen,
        access,
        leases,
        proxy: Arc::downgrade(&proxy),
    };
    for (listener, address) in redirected {
        let host = transparent::TransparentProxy(Arc::clone(&proxy));
        let acceptor = Acceptor::new(&running.tasks, slots.clone(), WhenFull::EvictSilent);
        acceptor.start(listener, Arc::new(host));
        running.redirected.push(address);
    }
    let new_acceptor = || Acceptor::new(&running.tasks, slots.clone(), WhenFull::EvictSilent);
    for DatabaseListener { listener, address, options } in postgresql {
        let server = PostgresqlServer::new(Arc::clone(&proxy), options);
        new_acceptor().start(listener, Arc::new(SessionHandler(server)));
        running.postgresql.push(address);
    }
    for DatabaseListener { listener, address, options } in redis {
        let server = RedisServer::new(Arc::clone(&proxy), options);
        new_acceptor().start(listener, Arc::new(SessionHandler(server)));
        running.redis.push(address);
    }
    Acceptor::new(&running.tasks, slots, WhenFull::EvictSilent).start(listener, proxy);
    Ok(running)
}

/// Returns a rule that checks each dialled address by the current rules.
fn address_rule(rules: &requests::LiveRules) -> AddressRule {
    let rules = rules.clone();
    AddressRule::new(move |name, address, port| {
        rules.now().names.action_at_address(name, address, port) != Action::Reject
    })
}

/// Creates the leaf keys of the process and, if configured, the leaf keys of users.
fn leaf_keys(options: &Options, stock: &RsaStock) -> Result<(Arc<LeafKeys>, Option<KeysByOwner>), KeyError> {
    let (of_leaves, users) = match options.leaf_keys {
        LeafKeySharing::ByUser => {
            let users = KeysByOwner::for_users(USERS_MAX, options.leaf_key_life, stock.clone());
            (LeafKeySharing::Shared, Some(users))
        }
        of_leaves => (of_leaves, None),
    };
    Ok((Arc::new(LeafKeys::new()?.of_leaves(of_leaves)), users))
}

/// Returns the minter, and the CA that clients must trust.
async fn minter(
    options: &Options,
    authority: Authority,
    keys: Arc<LeafKeys>,
    tasks: &ServiceTasks,
) -> Result<(Minter, Authority), StartError> {
    let Some(life) = options.intermediate else {
        return Ok((Minter::new(authority.clone(), keys, options.leaf_validity), authority));
    };
    let intermediates = Intermediates::new(authority.clone(), life);
    let first = intermediates.make(now()).await.map_err(StartError::Intermediate)?;
    let minter = Minter::new(first, keys, options.leaf_validity);
    let stop = tasks.stopping();
    let (renewed, renewer) = (minter.clone(), intermediates);
    tasks.spawn(async move { renewer.keep(renewed, stop).await });
    Ok((minter, authority))
}

async fn rotate_leaf_keys(keys: Arc<LeafKeys>, life: Duration, tasks: ServiceTasks) {
    keys.keep(life, tasks.stopping()).await;
}

impl Running {
    /// Returns the store of leaf certificates.
    #[must_use]
    pub fn store(&self) -> &CertificateStore {
        &self.store
    }

    /// Lets `replays` replay the recent requests of this proxy, until the proxy stops.
    pub fn serve_replays(&self, replays: &Replays) {
        replays.connect(Weak::clone(&self.proxy));
    }

    /// Replaces the rules, from the next request or CONNECT on, also for open connections.
    pub fn change_rules(
        &self,
        names: Rules,
        policy: Policy,
        requests: requests::RequestRules,
        secrets: Option<Arc<dyn requests::Secrets>>,
    ) {
        self.rules.change(requests::RuleSet { names, policy, requests, secrets });
        // Idle connections were opened under the old rules.
        self.upstreams.retire();
    }

    /// Replaces users and tokens. Connections of clients whose password or token was removed or changed end immediately.
    pub fn change_access(&self, users: Users, tokens: &[Token]) {
        self.access.change(users, tokens);
    }

    /// Reopens the access log and starts a new recording, after the files were rotated.
    pub fn reopen(&self) {
        self.reopen.all();
    }

    /// Stops accepting connections, and waits up to `grace` for open connections to end. Then revokes the leases of identities. Returns
    /// false if it had to abort some connections.
    pub async fn stop(self, grace: Duration) -> bool {
        let drained = self.tasks.close(grace).await;
        if let Some(leases) = self.leases {
            leases.stop().await;
        }
        drained
    }
}
