//! DNS resolver with a cache that honors TTLs.
//!
//! A stub resolver with a few permanent sockets. It queries every upstream concurrently and caches a result for the lowest TTL of
//! its records; negative results for the time that the zone's SOA allows (RFC 2308). Concurrent lookups of the same name share one
//! query.

mod answer;
mod counters;
mod error;
mod exchange;
mod kind;
mod lookup;
mod name;
mod options;
mod query;
mod system;
mod upstream;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use shared::Shared;
use tokio::task::JoinSet;
use tokio::time::Instant;

#[doc(hidden)]
pub use answer::read_response;
pub use answer::{CHAIN_MAX, LIFETIME_MAX};
pub use counters::Counts;
pub use error::ResolveError;
pub use exchange::{ExchangeError, Recursion, exchange, send_query};
pub use options::Options;
pub use system::name_servers;

use crate::Deadline;
use kind::Kind;
use lookup::{FamilyAddresses, FamilyLookup, Lookups, Question};
use name::WireName;

/// Maximum upstreams: each query goes to all of them.
pub const UPSTREAMS_MAX: usize = 8;
/// Lifetime of results without a TTL: TTL zero (RFC 1035 section 3.2.1), literal addresses and the hosts file.
const NO_TTL_LIFETIME: Duration = Duration::from_secs(5);
/// A result is prefetched when less than 1/`PREFETCH_PARTS` (a tenth) of its lifetime remains.
const PREFETCH_PARTS: u32 = 10;
/// Minimum lifetime of results that are prefetched. Scans rarely need a result again within a shorter time.
const PREFETCH_LIFE_MIN: Duration = Duration::from_secs(5);
/// Maximum concurrent prefetches; further names are queried after their expiry.
const PREFETCHES_MAX: usize = 64;
const PREFETCH_LIMIT: Duration = Duration::from_secs(5);
/// Time to wait for the second address family after the first. RFC 8305 section 3 recommends 50 ms for interactive use; a scan
/// prefers complete results.
const OTHER_FAMILY_WAIT_MAX: Duration = Duration::from_millis(500);

/// Address families to query.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Families {
    /// IPv4: A records.
    V4,
    /// IPv6: AAAA records.
    V6,
    /// Both, queried concurrently.
    Both,
}

impl Families {
    /// Returns the families that this machine can use: without an IPv6 route AAAA records are useless. Checks the routing table by
    /// connecting a UDP socket, which sends no packet.
    #[must_use]
    pub fn usable() -> Self {
        // c.root-servers.net, a permanent global address.
        let global = Ipv6Addr::new(0x2001, 0x500, 2, 0, 0, 0, 0, 0xc);
        let routed = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
            .and_then(|socket| socket.connect((global, 53)))
            .is_ok();
        if routed { Self::Both } else { Self::V4 }
    }

    fn include(self, address: &IpAddr) -> bool {
        match self {
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
            Self::Both => true,
        }
    }
}

/// The addresses of a name.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// Distinct addresses, IPv6 first, each family in response order.
    pub addresses: Vec<IpAddr>,
    /// Expiry of the addresses.
    pub valid_until: std::time::Instant,
    /// The aliases followed, in order; empty when there were none.
    pub aliases: Vec<String>,
    /// Whether the answer came from the cache.
    pub from_cache: bool,
    /// With [`Families::Both`]: the error of the family whose lookup failed. `None` when both lookups succeeded, even if one family
    /// has no addresses.
    pub incomplete: Option<ResolveError>,
}

/// A DNS resolver. Clones share cache and sockets; dropping the last one stops its tasks.
///
/// Must be used within a single tokio runtime, which runs its reader tasks.
#[derive(Clone)]
pub struct Resolver(Shared<ResolverState>);

struct ResolverState {
    lookups: Arc<Lookups>,
    hosts: HashMap<WireName, Vec<IpAddr>>,
    search: Vec<WireName>,
    ndots: usize,
    /// Owned by the resolver, so that dropping it aborts the prefetches.
    prefetches: Mutex<JoinSet<()>>,
}

impl Resolver {
    /// Creates a resolver from this machine's `/etc/resolv.conf` and `/etc/hosts`, read now.
    ///
    /// # Errors
    /// [`ResolveError::BadName`] when a search domain is not a host name.
    pub fn system() -> Result<Self, ResolveError> {
        let (upstreams, options) = system::upstreams_and_options();
        Self::new(upstreams, &options, system::hosts())
    }

    /// Creates a resolver with these upstreams, at most [`UPSTREAMS_MAX`], without hosts file and search domains. Without
    /// upstreams, every lookup fails with [`ResolveError::NoServer`].
    #[must_use]
    pub fn with_upstreams(upstreams: Vec<SocketAddr>) -> Self {
        Self::build(upstreams, &Options::default(), HashMap::new(), Vec::new())
    }

    /// Like [`Resolver::with_upstreams`], with `options`.
    ///
    /// # Errors
    /// [`ResolveError::BadName`] when a search domain is not a host name.
    pub fn with_options(upstreams: Vec<SocketAddr>, options: &Options) -> Result<Self, ResolveError> {
        Self::new(upstreams, options, HashMap::new())
    }

    fn new(
        upstreams: Vec<SocketAddr>,
        options: &Options,
        hosts: HashMap<WireName, Vec<IpAddr>>,
    ) -> Result<Self, ResolveError> {
        let search: Result<_, _> = options.search.iter().map(|d| WireName::parse(d)).collect();
        Ok(Self::build(upstreams, options, hosts, search?))
    }

    fn build(
        mut upstreams: Vec<SocketAddr>,
        options: &Options,
        hosts: HashMap<WireName, Vec<IpAddr>>,
        search: Vec<WireName>,
    ) -> Self {
        upstreams.truncate(UPSTREAMS_MAX);
        Self(Shared::new(ResolverState {
            lookups: Arc::new(Lookups::new(upstreams, options)),
            hosts,
            search,
            ndots: options.ndots,
            prefetches: Mutex::default(),
        }))
    }

    /// Returns the addresses of `name`, from the cache or within `limit`. A literal address is returned unchanged; `localhost` is never
    /// queried (RFC 6761 section 6.3).
    ///
    /// # Errors
    /// [`ResolveError`]; [`ResolveError::TimedOut`] after `limit`.
    ///
    /// # Cancellation
    /// Dropping the future cancels queries without other waiters.
    #[crate::boxed]
    pub async fn resolve(
        &self,
        name: &str,
        families: Families,
        limit: Duration,
    ) -> Result<Resolution, ResolveError> {
        if let Ok(address) = name.parse::<IpAddr>() {
            return static_resolution(vec![address], families);
        }
        let parsed = WireName::parse(name)?;
        if parsed.is_localhost() {
            let both = [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
            return static_resolution(both.into(), families);
        }
        let deadline = Deadline::within(limit);
        if !name.ends_with('.') && parsed.dots() < self.0.ndots {
            for domain in &self.0.search {
                match self.resolve_name(&parsed.within(domain)?, families, limit, deadline).await {
                    Err(ResolveError::NxDomain | ResolveError::NoAddress) => {}
                    result => return result,
                }
            }
        }
        self.resolve_name(&parsed, families, limit, deadline).await
    }

    /// Returns the counters since the resolver was created.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.0.lookups.counts()
    }

    /// Returns the number of lookups in progress.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.0.lookups.under_way()
    }

    async fn resolve_name(
        &self,
        name: &WireName,
        families: Families,
        limit: Duration,
        deadline: Deadline,
    ) -> Result<Resolution, ResolveError> {
        if let Some(addresses) = self.0.hosts.get(name) {
            return static_resolution(addresses.clone(), families);
        }
        let one = |kind| self.resolve_record_type(Question { name: name.clone(), kind }, limit, deadline);
        match families {
            Families::V4 => Ok(resolution(one(Kind::A).await?)),
            Families::V6 => Ok(resolution(one(Kind::Aaaa).await?)),
            Families::Both => both(one(Kind::Aaaa), one(Kind::A)).await,
        }
    }

    async fn resolve_record_type(
        &self,
        question: Question,
        limit: Duration,
        deadline: Deadline,
    ) -> Result<FamilyLookup, ResolveError> {
        if let Some(cached) = self.0.lookups.cached_lookup(&question) {
            if cached.outcome.is_ok() {
                self.prefetch_if_expiring(question, &cached);
            }
            return cached.outcome.clone().map(|answer| FamilyLookup { answer, from_cache: true });
        }
        let fetching = async {
            loop {
                let result = self.0.lookups.fetch(&question, limit).await;
                // A joined query may time out before this caller's limit: query again.
                match result {
                    Err(ResolveError::TimedOut) if !deadline.has_passed() => {}
                    other => return other,
                }
            }
        };
        let answer = deadline.bound(fetching).await.map_err(|_| ResolveError::TimedOut)??;
        Ok(FamilyLookup { answer, from_cache: false })
    }

    /// Prefetches a result in the background if it expires soon.
    fn prefetch_if_expiring(&self, question: Question, cached: &lookup::CachedLookup) {
        let life = cached.until.saturating_duration_since(cached.since);
        if life < PREFETCH_LIFE_MIN || !cached.expires_soon(Instant::now(), PREFETCH_PARTS) {
            return;
        }
        let mut prefetches = self.0.prefetches.lock();
        while prefetches.try_join_next().is_some() {}
        if prefetches.len() >= PREFETCHES_MAX {
            return;
        }
        let lookups = self.0.lookups.clone();
        let guard = telemetry::tasks::guard("dns-prefetch");
        prefetches.spawn(async move {
            let _guard = guard;
            if lookups.refresh(&question, PREFETCH_LIMIT).await {
                lookups.counters.prefetches.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

/// Returns a result without DNS: literal addresses, localhost, the hosts file.
fn static_resolution(mut addresses: Vec<IpAddr>, families: Families) -> Result<Resolution, ResolveError> {
    addresses.retain(|address| families.include(address));
    addresses.sort_by_key(IpAddr::is_ipv4);
    if addresses.is_empty() {
        return Err(ResolveError::NoAddress);
    }
    Ok(Resolution {
        addresses,
        valid_until: (Instant::now() + NO_TTL_LIFETIME).into_std(),
        aliases: Vec::new(),
        from_cache: true,
        incomplete: None,
    })
}

/// Waits for both families; the second gets only a little more time than the first.
async fn both(
    six: impl Future<Output = Result<FamilyLookup, ResolveError>>,
    four: impl Future<Output = Result<FamilyLookup, ResolveError>>,
) -> Result<Resolution, ResolveError> {
    let (mut six, mut four) = (std::pin::pin!(six), std::pin::pin!(four));
    let (six, four) = tokio::select! {
        six = &mut six => { let four = await_second_family(six.is_ok(), four).await; (six, four) }
        four = &mut four => { let six = await_second_family(four.is_ok(), six).await; (six, four) }
    };
    match (six, four) {
        (Ok(six), Ok(four)) => Ok(joined(six, four)),
        (Ok(found), Err(error)) | (Err(error), Ok(found)) => {
            let unknown = (error != ResolveError::NoAddress).then_some(error);
            Ok(Resolution { incomplete: unknown, ..resolution(found) })
        }
        (Err(six), Err(four)) => Err(if six.weight() > four.weight() { six } else { four }),
    }
}

async fn await_second_family(
    first_is_good: bool,
    other: impl Future<Output = Result<FamilyLookup, ResolveError>>,
) -> Result<FamilyLookup, ResolveError> {
    if !first_is_good {
        return other.await;
    }
    let limit = OTHER_FAMILY_WAIT_MAX;
    tokio::time::timeout(limit, other).await.unwrap_or(Err(ResolveError::TimedOut))
}

fn joined(six: FamilyLookup, four: FamilyLookup) -> Resolution {
    let mut resolution = resolution(six);
    resolution.addresses.extend_from_slice(&four.answer.addresses);
    resolution.valid_until = resolution.valid_until.min(valid_until(&four.answer));
    resolution.from_cache &= four.from_cache;
    resolution
}

fn resolution(found: FamilyLookup) -> Resolution {
    Resolution {
        valid_until: valid_until(&found.answer),
        addresses: found.answer.addresses.clone(),
        aliases: found.answer.aliases.iter().map(ToString::to_string).collect(),
        from_cache: found.from_cache,
        incomplete: None,
    }
}

fn valid_until(answer: &FamilyAddresses) -> std::time::Instant {
    let life = if answer.lifetime.is_zero() { NO_TTL_LIFETIME } else { answer.lifetime };
    (answer.since + life).into_std()
}
