//! Counters of a credential store client: connections, requests, logins, cache lookups and changes.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// Counters of a client since it was built.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Stats {
    /// Connections opened.
    pub connections: u64,
    /// TLS handshakes, both full and resumed.
    pub handshakes: u64,
    /// Requests sent, including logins, retries and the stream of changes.
    pub requests: u64,
    /// Retries, included in `requests`.
    pub retries: u64,
    /// Logins, included in `requests`.
    pub logins: u64,
    /// Lookups served from the cache with a fresh entry.
    pub hits: u64,
    /// Lookups served from the cache with a stale entry, because it is being refreshed or the store does not respond.
    pub stale_hits: u64,
    /// Lookups that waited for a request to the store, which they may have shared.
    pub misses: u64,
    /// Changes received.
    pub changes: u64,
    /// Gaps in the stream of changes, including its first start. All entries were read again.
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
