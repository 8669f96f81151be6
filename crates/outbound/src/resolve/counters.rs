//! Counters of the DNS resolver: queries, responses and cache lookups.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: AtomicU64,
    pub(crate) answers: AtomicU64,
    pub(crate) silent: AtomicU64,
    pub(crate) strays: AtomicU64,
    pub(crate) truncated: AtomicU64,
    pub(crate) prefetches: AtomicU64,
}

/// Counters of the resolver since its creation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Packets sent, including retransmissions.
    pub queries_sent: u64,
    /// UDP responses that matched a query.
    pub answers: u64,
    /// Queries to an upstream without a response.
    pub timeouts: u64,
    /// Packets that matched no query: late, repeated, or forged.
    pub strays: u64,
    /// Responses fetched over TCP because they were truncated.
    pub truncated: u64,
    /// Names that were queried again before their records expired.
    pub prefetches: u64,
    /// Lookups answered from the cache.
    pub hits: u64,
    /// Names that were not in the cache.
    pub misses: u64,
    /// Lookups that waited for another lookup of the same name.
    pub joined: u64,
}

impl Counters {
    pub(crate) fn counts(&self, cache: flight::Counts) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            queries_sent: read(&self.sent),
            answers: read(&self.answers),
            timeouts: read(&self.silent),
            strays: read(&self.strays),
            truncated: read(&self.truncated),
            prefetches: read(&self.prefetches),
            hits: cache.hits,
            misses: cache.misses,
            joined: cache.joined,
        }
    }
}
