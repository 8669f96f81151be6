//! What a client did, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// What a client has done since it was built.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Stats {
    /// Connections made.
    pub connections: u64,
    /// TLS handshakes, full ones and resumed.
    pub handshakes: u64,
    /// Requests sent: logins, tries again and the stream of changes among them.
    pub requests: u64,
    /// Of these tries again.
    pub retries: u64,
    /// Of these logins.
    pub logins: u64,
    /// Lookups answered from the cache while what it holds was true.
    pub hits: u64,
    /// Lookups answered from the cache past that: made again meanwhile, or the store does not answer.
    pub stale_hits: u64,
    /// Lookups that waited for the store, alone or with others.
    pub misses: u64,
    /// Changes that were told of.
    pub changes: u64,
    /// Gaps in the stream of changes, its beginning among them: everything was asked for again.
    pub gaps: u64,
}

/// The counters behind [`Stats`].
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) connections: Counter,
    pub(crate) handshakes: Counter,
    pub(crate) requests: Counter,
    pub(crate) retries: Counter,
    pub(crate) logins: Counter,
    pub(crate) hits: Counter,
    pub(crate) stale_hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) changes: Counter,
    pub(crate) gaps: Counter,
}

#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            connections: self.connections.get(),
            handshakes: self.handshakes.get(),
            requests: self.requests.get(),
            retries: self.retries.get(),
            logins: self.logins.get(),
            hits: self.hits.get(),
            stale_hits: self.stale_hits.get(),
            misses: self.misses.get(),
            changes: self.changes.get(),
            gaps: self.gaps.get(),
        }
    }
}
