//! Names to addresses, as true and as long as the name servers say.
//!
//! A stub resolver of our own over `hickory-proto`'s messages: the libraries' caches clamp
//! lifetimes, fold failures into one, and open a socket a query. Here an answer lives for the smallest
//! TTL along its alias chain, each failure keeps its name, all upstreams are asked at once, and a name is
//! asked for once however many want it.

mod answer;
mod system;
mod upstream;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use flight::{Failed, Fresh};
use futures_util::stream::{FuturesUnordered, StreamExt};
use hickory_proto::rr::{Name, RecordType};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use answer::{Answer, Interpreted};
use system::{Hosts, Search};
use upstream::Upstream;

pub use answer::{ALIASES_MAX, NEGATIVE_TTL_MAX, TTL_MAX};
pub use system::SystemError;

/// Answers remembered: about 300 octets each. The least recently used go first.
pub const ANSWERS_MAX: u64 = 65_536;
/// Queries under way at once, over all upstreams: further ones wait. Home routers drop more.
pub const QUERIES_MAX: usize = 512;
/// When a query is sent again, counted from the first time. Losing one datagram costs 400 ms.
const SENT_AGAIN_AFTER: [Duration; 3] =
    [Duration::from_millis(400), Duration::from_millis(1_200), Duration::from_millis(2_800)];
/// The longest a query may take whoever waits for it.
const QUERY_MAX: Duration = Duration::from_secs(10);
/// How long a server's failure is remembered (RFC 2308 section 7.1 allows five minutes).
const FAILURE_REMEMBERED: Duration = Duration::from_secs(1);
/// An answer is asked for again in the background when a tenth of its life is left…
const PREFETCH_PART: u32 = 10;
/// …if it lives this long at all, and this many at once.
const PREFETCH_LIFE_MIN: Duration = Duration::from_secs(5);
const PREFETCHES_MAX: usize = 64;

/// Which addresses to ask for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Families {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// Both, asked for at once.
    Both,
}

impl Families {
    /// Those this machine has a route for: asking for the others would cost a query a name and bring
    /// addresses that cannot be reached. Nothing is sent to find out.
    #[must_use]
    pub fn usable() -> Self {
        // Connecting a datagram socket only looks up the route. The documentation prefix (RFC 3849)
        // may be blackholed; a root server's address is simply somewhere else.
        let routed = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
            .and_then(|socket| socket.connect("[2001:500:2f::f]:53"));
        if routed.is_ok() { Self::Both } else { Self::V4 }
    }

    fn types(self) -> &'static [RecordType] {
        match self {
            Self::V4 => &[RecordType::A],
            Self::V6 => &[RecordType::AAAA],
            Self::Both => &[RecordType::AAAA, RecordType::A],
        }
    }
}

/// Where a name leads.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// Never empty; IPv6 before IPv4, each in the server's order.
    pub addresses: Vec<IpAddr>,
    /// When the servers' word for this ends.
    pub valid_until: Instant,
    /// The aliases followed, in order.
    pub aliases: Vec<String>,
}

/// Why a name leads nowhere.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ResolveError {
    /// The name does not exist.
    #[error("the name does not exist")]
    NxDomain,
    /// The name exists, without an address of the families asked for.
    #[error("the name has no address")]
    NoAddress,
    /// Every server failed.
    #[error("the name servers failed (SERVFAIL)")]
    ServFail,
    /// Every server refused to answer us.
    #[error("the name servers refused")]
    Refused,
    /// No server answered in time.
    #[error("no name server answered in time")]
    TimedOut,
    /// No server can be reached at all.
    #[error("no name server can be reached: check /etc/resolv.conf, or name one with --dns")]
    NoServer,
    /// The aliases lead back to themselves, or on for more than [`ALIASES_MAX`].
    #[error("the aliases of {0} go round in circles")]
    AliasLoop(String),
    /// The answer is none.
    #[error("the name server's answer makes no sense: {0}")]
    Malformed(&'static str),
    /// Not a name that can be asked for.
    #[error("not a name that can be asked for")]
    BadName,
}

/// What a resolver has done since it was made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Datagrams sent, repeats included.
    pub queries: u64,
    /// Repeats among them.
    pub repeats: u64,
    /// Questions asked over TCP because the answer was too long.
    pub over_tcp: u64,
    /// Lookups answered from memory.
    pub hits: u64,
    /// Lookups that waited for another's query.
    pub joined: u64,
}

#[derive(Default)]
struct Counters {
    queries: AtomicU64,
    repeats: AtomicU64,
    over_tcp: AtomicU64,
}

type Key = (Arc<str>, RecordType);

struct Inner {
    upstreams: Vec<Upstream>,
    hosts: Hosts,
    search: Search,
    answers: flight::Cache<Key, Arc<Answer>, ResolveError>,
    under_way: Semaphore,
    prefetches: Arc<Semaphore>,
    counters: Counters,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

/// Asks name servers. Cheap to clone; clones share everything. Its tasks stop with the last clone.
#[derive(Clone)]
pub struct Resolver(Arc<Inner>);

impl Resolver {
    /// As this system is set up: `/etc/resolv.conf` and `/etc/hosts`.
    ///
    /// # Errors
    /// When `/etc/resolv.conf` is there and cannot be read. Without it the server on this host is
    /// asked, as resolv.conf(5) has it.
    pub fn system() -> Result<Self, SystemError> {
        let (servers, search) = system::resolv_conf()?;
        Ok(Self::new(servers, Hosts::system(), search))
    }

    /// Asks `servers` and nothing else: no hosts file, no search list.
    #[must_use]
    pub fn with_upstreams(servers: Vec<SocketAddr>) -> Self {
        Self::new(servers, Hosts::default(), Search::default())
    }

    fn new(servers: Vec<SocketAddr>, hosts: Hosts, search: Search) -> Self {
        let stop = CancellationToken::new();
        Self(Arc::new(Inner {
            upstreams: servers.into_iter().map(|s| Upstream::new(s, stop.clone())).collect(),
            hosts,
            search,
            answers: flight::Cache::with_entries(ANSWERS_MAX),
            under_way: Semaphore::new(QUERIES_MAX),
            prefetches: Arc::new(Semaphore::new(PREFETCHES_MAX)),
            counters: Counters::default(),
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        }))
    }

    /// The addresses of `name`, within `limit`.
    ///
    /// # Errors
    /// [`ResolveError`], each kind of failure by its own name.
    ///
    /// # Cancellation
    /// Dropping the future asks nothing more, unless others wait for the same name.
    pub async fn resolve(
        &self,
        name: &str,
        families: Families,
        limit: Duration,
    ) -> Result<Resolution, ResolveError> {
        if let Some(addresses) = self.0.hosts.get(name, families) {
            return Ok(Resolution {
                addresses,
                valid_until: Instant::now() + TTL_MAX,
                aliases: Vec::new(),
            });
        }
        let found = tokio::time::timeout(limit, self.search(name, families)).await;
        found.unwrap_or(Err(ResolveError::TimedOut))
    }

    /// What has been done so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let cache = self.0.answers.counts();
        Counts {
            queries: self.0.counters.queries.load(Relaxed),
            repeats: self.0.counters.repeats.load(Relaxed),
            over_tcp: self.0.counters.over_tcp.load(Relaxed),
            hits: cache.hits,
            joined: cache.joined,
        }
    }

    /// Tries the name under each search domain that applies.
    async fn search(&self, name: &str, families: Families) -> Result<Resolution, ResolveError> {
        let mut last = ResolveError::BadName;
        for candidate in self.0.search.candidates(name) {
            match self.both_families(&candidate, families).await {
                Err(error @ (ResolveError::NxDomain | ResolveError::NoAddress)) => last = error,
                other => return other,
            }
        }
        Err(last)
    }

    async fn both_families(
        &self,
        name: &str,
        families: Families,
    ) -> Result<Resolution, ResolveError> {
        let name: Arc<str> = name.into();
        match families.types() {
            [only] => combine([self.answer(&name, *only).await]),
            _ => {
                let (six, four) = tokio::join!(
                    self.answer(&name, RecordType::AAAA),
                    self.answer(&name, RecordType::A)
                );
                combine([six, four])
            }
        }
    }

    /// From memory, or asked for once for all who want it.
    async fn answer(
        &self,
        name: &Arc<str>,
        kind: RecordType,
    ) -> Result<Arc<Answer>, ResolveError> {
        let key = (name.clone(), kind);
        if let Some(cached) = self.0.answers.get(&key) {
            let now = tokio::time::Instant::now();
            let life = cached.until.saturating_duration_since(cached.since);
            if cached.outcome.is_ok()
                && life >= PREFETCH_LIFE_MIN
                && cached.ends_soon(now, PREFETCH_PART)
            {
                self.prefetch(key);
            }
            return cached.outcome.clone();
        }
        let inner = self.0.clone();
        let (asked, work) = (key.clone(), async move { inner.ask(&key.0, key.1).await });
        self.0.answers.fetch(&asked, || work).await
    }

    /// Asks again before the answer ends, so that nobody waits for it.
    fn prefetch(&self, key: Key) {
        let Ok(place) = self.0.prefetches.clone().try_acquire_owned() else { return };
        let (resolver, guard) = (Arc::downgrade(&self.0), telemetry::tasks::guard("dns-prefetch"));
        let stop = self.0.stop.clone();
        tokio::spawn(async move {
            let (_place, _guard) = (place, guard);
            let Some(inner) = resolver.upgrade() else { return };
            let (asking, asked) = (inner.clone(), key.clone());
            let refresh =
                inner.answers.refresh(&key, move || async move { asking.ask(&asked.0, asked.1).await });
            tokio::select! {
                () = stop.cancelled() => {}
                _ = refresh => {}
            }
        });
    }
}

/// One resolution from the answers of each family: one that leads somewhere is enough.
fn combine<const N: usize>(
    answers: [Result<Arc<Answer>, ResolveError>; N],
) -> Result<Resolution, ResolveError> {
    let mut resolution: Option<Resolution> = None;
    let mut failure: Option<ResolveError> = None;
    for answer in answers {
        match answer {
            Ok(answer) => {
                let found = resolution.get_or_insert_with(|| Resolution {
                    addresses: Vec::new(),
                    valid_until: answer.valid_until,
                    aliases: answer.aliases.clone(),
                });
                found.addresses.extend(&answer.addresses);
                found.valid_until = found.valid_until.min(answer.valid_until);
            }
            // Having no address of one family says the least.
            Err(error) if failure.is_none() || failure == Some(ResolveError::NoAddress) => {
                failure = Some(error);
            }
            Err(_) => {}
        }
    }
    resolution.ok_or(failure.unwrap_or(ResolveError::BadName))
}

impl Inner {
    /// Follows the name to its addresses, over as many queries as its aliases need.
    async fn ask(
        &self,
        name: &str,
        kind: RecordType,
    ) -> Result<Fresh<Arc<Answer>>, Failed<ResolveError>> {
        let now_and_never = |error| Failed { error, lifetime: Duration::ZERO };
        let mut asked = Name::from_ascii(name).map_err(|_| now_and_never(ResolveError::BadName))?;
        asked.set_fqdn(true);
        let mut aliases = Vec::new();
        let mut ttl = TTL_MAX;
        loop {
            let message = self.query(&asked, kind).await.map_err(|error| match error {
                ResolveError::ServFail | ResolveError::Refused => {
                    Failed { error, lifetime: FAILURE_REMEMBERED }
                }
                error => now_and_never(error),
            })?;
            match answer::interpret(&message, &asked, kind, &mut aliases, ttl) {
                Interpreted::Addresses { addresses, ttl } => {
                    let valid_until = Instant::now() + ttl;
                    let answer = Answer { addresses, aliases, valid_until };
                    return Ok(Fresh { value: Arc::new(answer), lifetime: ttl });
                }
                Interpreted::Onward { to, ttl: so_far } => (asked, ttl) = (to, so_far),
                Interpreted::Nothing { error, ttl } => {
                    return Err(Failed { error, lifetime: ttl });
                }
            }
        }
    }

    /// Asks every upstream, again and again, until one gives a good answer. A server that fails is
    /// outvoted by one that answers; when all fail, the last failure stands.
    async fn query(
        &self,
        name: &Name,
        kind: RecordType,
    ) -> Result<hickory_proto::op::Message, ResolveError> {
        let _place = self.under_way.acquire().await;
        let question = answer::Question::new(name, kind).ok_or(ResolveError::BadName)?;
        let asked = tokio::time::timeout(QUERY_MAX, async {
            let mut asking: FuturesUnordered<_> =
                self.upstreams.iter().map(|upstream| self.ask_one(upstream, &question)).collect();
            let mut last = ResolveError::NoServer;
            while let Some(answered) = asking.next().await {
                match answered {
                    Ok(message) => return Ok(message),
                    Err(error) => last = error,
                }
            }
            Err(last)
        });
        asked.await.unwrap_or(Err(ResolveError::TimedOut))
    }

    async fn ask_one(
        &self,
        upstream: &Upstream,
        question: &answer::Question,
    ) -> Result<hickory_proto::op::Message, ResolveError> {
        let mut waiting = upstream.send(question).await?;
        self.counters.queries.fetch_add(1, Relaxed);
        let began = tokio::time::Instant::now();
        let mut again = SENT_AGAIN_AFTER.iter();
        let octets = loop {
            let next = again.next().map_or(QUERY_MAX, |after| *after);
            match tokio::time::timeout_at(began + next, waiting.answer()).await {
                Ok(octets) => break octets?,
                Err(_) if next == QUERY_MAX => return Err(ResolveError::TimedOut),
                Err(_) => {
                    waiting.send_again().await;
                    self.counters.queries.fetch_add(1, Relaxed);
                    self.counters.repeats.fetch_add(1, Relaxed);
                }
            }
        };
        let mut message = answer::read(&octets)?;
        if message.metadata.truncation {
            self.counters.over_tcp.fetch_add(1, Relaxed);
            message = answer::read(&upstream.over_tcp(question).await?)?;
        }
        answer::accept(message)
    }
}

/// The loopback addresses, which the name `localhost` always has (RFC 6761 section 6.3).
fn localhost(families: Families) -> Vec<IpAddr> {
    match families {
        Families::V4 => vec![Ipv4Addr::LOCALHOST.into()],
        Families::V6 => vec![Ipv6Addr::LOCALHOST.into()],
        Families::Both => vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()],
    }
}
