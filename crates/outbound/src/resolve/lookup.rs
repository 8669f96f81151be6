//! Queries all upstreams, follows aliases and caches the results.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use flight::{Cache, Cached, Failed, Fresh};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hickory_proto::op::{Message, ResponseCode};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::answer::{self, AliasChain, End, Reading};
use super::counters::{Counters, Counts};
use super::error::ResolveError;
use super::kind::Kind;
use super::name::WireName;
use super::options::Options;
use super::query::Query;
use super::upstream::{QueryTimeouts, Upstream};

/// A name and record type: the key of queries and of the cache.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Question {
    pub(crate) name: WireName,
    pub(crate) kind: Kind,
}

/// Addresses of a name in one family, IPv4 or IPv6.
#[derive(Debug)]
pub(crate) struct FamilyAddresses {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) aliases: Vec<WireName>,
    pub(crate) since: Instant,
    pub(crate) lifetime: Duration,
}

pub(crate) struct FamilyLookup {
    pub(crate) answer: Arc<FamilyAddresses>,
    pub(crate) from_cache: bool,
}

pub(crate) type CachedLookup = Cached<Arc<FamilyAddresses>, ResolveError>;
type LookupOutcome = Result<Fresh<Arc<FamilyAddresses>>, Failed<ResolveError>>;

pub(crate) struct Lookups {
    cache: Cache<Question, Arc<FamilyAddresses>, ResolveError>,
    querier: Arc<Querier>,
    pub(crate) counters: Arc<Counters>,
}

/// Sender of queries to the upstreams. Separate from the cache, so that queries in progress do not keep the cache alive.
struct Querier {
    upstreams: Vec<Upstream>,
    slots: Semaphore,
    failure_lifetime: Duration,
}

impl Lookups {
    pub(crate) fn new(upstreams: Vec<SocketAddr>, options: &Options) -> Self {
        let counters = Arc::new(Counters::default());
        let upstream = |address| Upstream::new(address, counters.clone());
        Self {
            cache: Cache::with_entries_max(options.cache_entries),
            querier: Arc::new(Querier {
                upstreams: upstreams.into_iter().map(upstream).collect(),
                slots: Semaphore::new(options.in_flight.clamp(1, Semaphore::MAX_PERMITS)),
                failure_lifetime: options.failure_lifetime,
            }),
            counters,
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counters.counts(self.cache.counts())
    }

    pub(crate) fn under_way(&self) -> usize {
        self.cache.under_way()
    }

    pub(crate) fn cached_lookup(&self, question: &Question) -> Option<Arc<CachedLookup>> {
        self.cache.get(question)
    }

    pub(crate) async fn fetch(
        &self,
        question: &Question,
        limit: Duration,
    ) -> Result<Arc<FamilyAddresses>, ResolveError> {
        let (querier, queried) = (self.querier.clone(), question.clone());
        self.cache.fetch(question, move || async move { querier.look_up(queried, limit).await }).await
    }

    /// Queries again and replaces the cached result; returns false when a query was already in progress.
    pub(crate) async fn refresh(&self, question: &Question, limit: Duration) -> bool {
        let (querier, queried) = (self.querier.clone(), question.clone());
        let make = move || async move { querier.look_up(queried, limit).await };
        self.cache.refresh(question, make).await.is_some()
    }
}

impl Querier {
    async fn look_up(&self, question: Question, limit: Duration) -> LookupOutcome {
        let mut alias_chain = AliasChain::new(question.name);
        match self.follow(&mut alias_chain, question.kind, limit).await {
            Ok(End::Addresses(addresses)) => {
                let lifetime = alias_chain.lifetime;
                let aliases = alias_chain.names.split_off(1);
                let answer = FamilyAddresses { addresses, aliases, since: Instant::now(), lifetime };
                Ok(Fresh { value: Arc::new(answer), lifetime })
            }
            Ok(End::Nothing(error)) => Err(Failed { error, lifetime: alias_chain.lifetime }),
            Err(error) => Err(Failed { lifetime: self.error_lifetime(&error), error }),
        }
    }

    /// Sends further queries as long as responses end in an alias. Terminates because the length of `alias_chain` is limited.
    async fn follow(
        &self,
        alias_chain: &mut AliasChain,
        kind: Kind,
        limit: Duration,
    ) -> Result<End, ResolveError> {
        let timeouts = QueryTimeouts::for_caller(limit);
        loop {
            let message = self.send_query(alias_chain.end(), kind, timeouts).await?;
            match answer::follow(&message, kind, alias_chain)? {
                Reading::Alias => {}
                Reading::End(end) => return Ok(end),
            }
        }
    }

    /// Returns how long an error is cached. A timeout depends on the caller's limit, so it is not cached.
    fn error_lifetime(&self, error: &ResolveError) -> Duration {
        match error {
            ResolveError::TimedOut => Duration::ZERO,
            _ => self.failure_lifetime,
        }
    }

    /// Queries all upstreams concurrently. Returns the first success. After a failure, waits a limited time for the other
    /// upstreams.
    async fn send_query(
        &self,
        name: &WireName,
        kind: Kind,
        timeouts: QueryTimeouts,
    ) -> Result<Message, ResolveError> {
        // The semaphore is never closed; on an error there would be no limit.
        let _slot = self.slots.acquire().await;
        if let [only] = &self.upstreams[..] {
            return query_upstream(only, name, kind, timeouts).await.and_then(answer::check_response_code);
        }
        let mut queried: FuturesUnordered<_> =
            self.upstreams.iter().map(|upstream| query_upstream(upstream, name, kind, timeouts)).collect();
        let mut worst: Option<ResolveError> = None;
        let others_until = tokio::time::sleep(timeouts.give_up);
        tokio::pin!(others_until);
        loop {
            let result = tokio::select! {
                next = queried.next() => match next {
                    Some(result) => result.and_then(answer::check_response_code),
                    None => return Err(worst.unwrap_or(ResolveError::NoServer)),
                },
                () = &mut others_until => return Err(worst.unwrap_or(ResolveError::TimedOut)),
            };
            let error = match result {
                Ok(message) => return Ok(message),
                Err(error) => error,
            };
            if worst.is_none() && error != ResolveError::TimedOut {
                others_until.as_mut().reset(Instant::now() + timeouts.resend[0]);
            }
            worst = Some(match worst {
                Some(worst) if worst.weight() >= error.weight() => worst,
                _ => error,
            });
        }
    }
}

async fn query_upstream(
    upstream: &Upstream,
    name: &WireName,
    kind: Kind,
    timeouts: QueryTimeouts,
) -> Result<Message, ResolveError> {
    let extended = upstream.supports_edns();
    let answer = parse(&upstream.send_query(Query::new(name, kind, extended), timeouts).await?)?;
    if !extended || answer.metadata.response_code != ResponseCode::FormErr {
        return Ok(answer);
    }
    // RFC 6891 section 7: the server predates EDNS.
    upstream.disable_edns();
    parse(&upstream.send_query(Query::new(name, kind, false), timeouts).await?)
}

fn parse(bytes: &[u8]) -> Result<Message, ResolveError> {
    Message::from_vec(bytes).map_err(|_| ResolveError::Malformed("the message cannot be parsed"))
}
