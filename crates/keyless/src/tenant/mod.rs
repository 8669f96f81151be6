//! Tenants: the owner of each request, with limits on processor share, rate and concurrent requests, and permissions for keys.
//!
//! A client is identified only by its certificate ([`Identity`]), never by its messages. Clients that match no tenant belong to the
//! tenant [`DEFAULT`], clients on a Unix socket to [`SOCKET`]. All settings can be changed at runtime: the counts of a tenant stay,
//! and every connection uses the new configuration from its next request on.

mod identity;
mod options;
mod rights;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use parking_lot::{Mutex, RwLock};

use crate::Key;
use crate::flow::FlowMonitor;
use crate::limits::{NODE_PER_TENANT_MAX, REMOTE_PER_KEY_MAX};
use crate::metrics::{Metrics, TenantCounters};
use crate::refusal::Refusal;
use crate::stage::{Responder, Stage};
use identity::Pattern;
use rights::KeyPermissions;

pub use crate::limits::TENANT_MAX as IN_FLIGHT_MAX;
pub use identity::Identity;
pub use options::{DEFAULT, SOCKET, TENANTS_MAX, TenantError, TenantOptions, check};

/// The current configuration of a tenant.
pub(crate) struct Tenant {
    options: TenantOptions,
    patterns: Vec<Pattern>,
    rights: KeyPermissions,
    limiter: Option<Arc<DefaultDirectRateLimiter>>,
    /// Whether there are no other tenants.
    is_alone: bool,
    /// Version of the tenants' configuration that introduced this state.
    generation: u64,
    account: Arc<Account>,
}

impl Tenant {
    fn new(options: &TenantOptions, account: Arc<Account>, before: Option<&Self>, is_alone: bool) -> Self {
        let rate = |options: &TenantOptions| (options.rate_per_s, options.burst);
        let same = before.filter(|before| rate(&before.options) == rate(options));
        let limiter = same.map_or_else(
            || {
                let rate = NonZeroU32::new(options.rate_per_s)?;
                let burst = NonZeroU32::new(options.burst).unwrap_or(rate);
                Some(Arc::new(RateLimiter::direct(Quota::per_second(rate).allow_burst(burst))))
            },
            |before| before.limiter.clone(),
        );
        account.counters.in_flight_max.set(options.in_flight_max as i64);
        Self {
            patterns: options.clients.iter().filter_map(|text| Pattern::parse(text)).collect(),
            rights: KeyPermissions::new(&options.keys),
            limiter,
            options: options.clone(),
            is_alone,
            generation: 0,
            account,
        }
    }

    /// Returns the maximum number of concurrent requests to one key of a security module or cloud.
    pub(crate) fn requests_per_key_max(&self) -> usize {
        match self.options.destination_in_flight_max {
            0 if self.is_alone => usize::MAX,
            0 => REMOTE_PER_KEY_MAX / 2,
            most => most,
        }
    }

    /// Returns the maximum number of concurrent requests to one other node.
    pub(crate) fn requests_per_node_max(&self) -> usize {
        match self.options.destination_in_flight_max {
            0 => NODE_PER_TENANT_MAX,
            most => most.min(NODE_PER_TENANT_MAX),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.options.name
    }

    /// Returns the version of the tenants' configuration that introduced this state.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the number of the tenant's queue in the stage.
    pub(crate) fn line(&self) -> usize {
        self.account.line
    }

    pub(crate) fn counters(&self) -> &TenantCounters {
        &self.account.counters
    }

    /// Reserves `count` bytes of memory for inputs, up to `most` bytes for the tenant.
    pub(crate) fn bytes(&self, count: usize, most: usize) -> Option<Counted> {
        Counted::take(&self.account, count, most, |account| &account.bytes)
    }

    pub(crate) fn may_decrypt(&self) -> bool {
        self.options.rsa_decrypt
    }

    pub(crate) fn may_use(&self, key: &Key) -> bool {
        self.rights.cover(key)
    }

    /// Counts a request until [`Self::ended`]. Returns the number in progress, including the new one.
    pub(crate) fn began(&self, now: Instant) -> i64 {
        self.account.counters.requests.inc();
        self.account.counters.in_flight.inc();
        self.account.flow.began(now)
    }

    /// Counts the end of a request with its duration.
    pub(crate) fn ended(&self, now: Instant, took: Duration) {
        self.account.counters.in_flight.dec();
        self.account.counters.took.inc_by(took.as_secs_f64());
        self.account.flow.ended(now, took);
    }

    /// Checks a request against the tenant's limits. `in_flight` is the number in progress.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn admit(&self, in_flight: i64) -> Result<(), Refusal> {
        if in_flight > self.options.in_flight_max as i64 {
            return Err(Refusal::InFlight);
        }
        match &self.limiter {
            Some(limiter) if limiter.check().is_err() => Err(Refusal::Rate),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant").field("options", &self.options).finish_non_exhaustive()
    }
}

/// State of a tenant that survives a change of its options.
struct Account {
    line: usize,
    counters: TenantCounters,
    flow: FlowMonitor,
    connections: AtomicUsize,
    bytes: AtomicUsize,
}

impl Account {
    fn new(line: usize, counters: TenantCounters) -> Arc<Self> {
        let flow = FlowMonitor::new(counters.ratio.clone());
        let (connections, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { line, counters, flow, connections, bytes })
    }
}

/// An amount that is counted for a tenant, until dropped.
pub(crate) struct Counted {
    account: Arc<Account>,
    count: usize,
    of: fn(&Account) -> &AtomicUsize,
}

impl Counted {
    fn take(
        account: &Arc<Account>,
        count: usize,
        most: usize,
        of: fn(&Account) -> &AtomicUsize,
    ) -> Option<Self> {
        // If the maximum is exceeded, dropping `counted` returns the amount.
        let counted = Self { account: Arc::clone(account), count, of };
        let before = of(account).fetch_add(count, Ordering::Relaxed);
        (before + count <= most).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.of)(&self.account).fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// All tenants with their current configuration.
pub(crate) struct Tenants {
    table: RwLock<Arc<Table>>,
    /// Version of the configuration; increases with each change.
    generation: AtomicU64,
    metrics: Metrics,
    /// Maximum connections of all tenants together.
    connections_max: usize,
}

struct Table {
    /// Tenants in the order of the configuration, including the default tenant.
    tenants: Vec<Arc<Tenant>>,
    by_name: HashMap<String, Arc<Tenant>>,
    default: Arc<Tenant>,
    socket: Arc<Tenant>,
}

impl Tenants {
    /// Creates only the default tenant.
    pub(crate) fn new(metrics: Metrics, connections_max: usize) -> Self {
        let account = Account::new(0, metrics.tenant(DEFAULT));
        let default = Arc::new(Tenant::new(&TenantOptions::of_others(true), account, None, true));
        let (tenants, by_name) = (vec![Arc::clone(&default)], HashMap::new());
        let table = Table { tenants, by_name, socket: Arc::clone(&default), default };
        Self { table: RwLock::new(Arc::new(table)), generation: AtomicU64::new(0), metrics, connections_max }
    }

    /// Takes a slot for a TLS connection of this client.
    ///
    /// # Errors
    /// The name of its tenant, which has reached its maximum.
    pub(crate) fn connection(&self, identity: &Identity) -> Result<Counted, String> {
        let (tenant, is_alone) = (self.of(identity), self.table.read().tenants.len() == 1);
        let most = match tenant.options.connections_max {
            0 if is_alone => self.connections_max,
            0 => self.connections_max.div_ceil(2),
            most => most,
        };
        Counted::take(&tenant.account, 1, most, |account| &account.connections)
            .ok_or_else(|| tenant.name().to_owned())
    }

    /// Replaces all tenants. If `options` has no default tenant, one is added: it may use every key if it is the only tenant, and
    /// no key otherwise.
    ///
    /// # Errors
    /// [`TenantError`]; the old tenants stay in use.
    pub(crate) fn change<A: Responder>(
        &self,
        options: &[TenantOptions],
        stage: &Stage<A>,
    ) -> Result<(), TenantError> {
        check(options)?;
        let mut options = options.to_vec();
        let is_alone = options.is_empty() || options.len() == 1 && options[0].name == DEFAULT;
        // If tenants are configured, a client that matches none may use no key, unless a default tenant is configured.
        let may_use_none = !options.is_empty() && !options.iter().any(|tenant| tenant.name == DEFAULT);
        if !options.iter().any(|tenant| tenant.name == DEFAULT) {
            options.push(TenantOptions::of_others(is_alone));
        }
        let mut table = self.table.write();
        let before = |name: &str| table.tenants.iter().find(|tenant| tenant.name() == name);
        let used_lines: HashSet<usize> =
            options.iter().filter_map(|tenant| before(&tenant.name)).map(|tenant| tenant.line()).collect();
        let mut free = (0..).filter(|line| !used_lines.contains(line));
        let mut tenants = Vec::new();
        for options in &options {
            let known = before(&options.name);
            let account = match known {
                Some(known) => Arc::clone(&known.account),
                None => Account::new(free.next().unwrap_or_default(), self.metrics.tenant(&options.name)),
            };
            let mut tenant = Tenant::new(options, account, known.map(|known| &**known), is_alone);
            tenant.generation = self.generation.load(Ordering::Acquire) + 1;
            if may_use_none && options.name == DEFAULT {
                tenant.rights = KeyPermissions::default();
            }
            tenants.push(Arc::new(tenant));
        }
        for old_tenant in &table.tenants {
            if !options.iter().any(|tenant| tenant.name == old_tenant.name()) {
                self.metrics.forget_tenant(old_tenant.name());
            }
        }
        let mut shares = vec![0; tenants.iter().map(|tenant| tenant.line() + 1).max().unwrap_or(1)];
        tenants.iter().for_each(|tenant| shares[tenant.line()] = tenant.options.share);
        let named = |name: &str| tenants.iter().find(|tenant| tenant.name() == name).map(Arc::clone);
        let Some(default) = named(DEFAULT) else { return Ok(()) };
        let socket = named(SOCKET).unwrap_or_else(|| Arc::clone(&default));
        stage.set_shares(&shares);
        let by_name = tenants.iter().map(|tenant| (tenant.name().to_owned(), Arc::clone(tenant))).collect();
        *table = Arc::new(Table { tenants, by_name, default, socket });
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn of(&self, identity: &Identity) -> Arc<Tenant> {
        let table = self.table.read();
        if identity.is_local {
            return Arc::clone(&table.socket);
        }
        let knows = |tenant: &&Arc<Tenant>| tenant.patterns.iter().any(|pattern| pattern.knows(identity));
        Arc::clone(table.tenants.iter().find(knows).unwrap_or(&table.default))
    }

    /// Returns the tenant with the name in a node's request, or else the default tenant.
    pub(crate) fn named(&self, name: &str) -> Arc<Tenant> {
        let table = self.table.read();
        Arc::clone(table.by_name.get(name).unwrap_or(&table.default))
    }

    /// Samples the flow of every tenant; call it every [`SAMPLE_EVERY`](crate::flow::SAMPLE_EVERY).
    pub(crate) fn sample(&self, now: Instant) {
        let table = Arc::clone(&self.table.read());
        for tenant in &table.tenants {
            tenant.account.flow.sample(now);
        }
    }
}

/// The client of a connection.
pub(crate) struct Client {
    identity: Identity,
    /// Tenant of the client, and the configuration version by which it was chosen.
    tenant: Mutex<(u64, Arc<Tenant>)>,
}

impl Client {
    pub(crate) fn new(identity: Identity, tenants: &Tenants) -> Self {
        // Read before the lookup: a change between the two is seen by the next request.
        let generation = tenants.generation.load(Ordering::Acquire);
        let tenant = tenants.of(&identity);
        Self { identity, tenant: Mutex::new((generation, tenant)) }
    }

    /// Returns the tenant of the connection by the current configuration.
    pub(crate) fn tenant(&self, tenants: &Tenants) -> Arc<Tenant> {
        let generation = tenants.generation.load(Ordering::Acquire);
        let mut tenant = self.tenant.lock();
        if tenant.0 != generation {
            *tenant = (generation, tenants.of(&self.identity));
        }
        Arc::clone(&tenant.1)
    }

    /// Returns the tenant of a request. The name in the request counts only if the client is a node.
    pub(crate) fn tenant_of(&self, named: &str, tenants: &Tenants) -> Arc<Tenant> {
        if self.is_node() && !named.is_empty() { tenants.named(named) } else { self.tenant(tenants) }
    }

    /// Returns whether the client is another node.
    pub(crate) fn is_node(&self) -> bool {
        self.identity.is_node()
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }
}
