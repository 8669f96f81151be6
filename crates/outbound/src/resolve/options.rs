//! The settings of a resolver.

use std::time::Duration;

/// Resolver options; `Default` suits a scan.
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum cached results, including negative ones; a few hundred bytes each.
    pub cache_entries: u64,
    /// Maximum concurrent queries; further ones wait.
    pub in_flight: usize,
    /// Time for which a failure (SERVFAIL, REFUSED, malformed response) is cached, so that a thousand targets in one broken zone
    /// need one query. RFC 2308 section 7 allows five minutes.
    pub failure_lifetime: Duration,
    /// Search domains for names with fewer dots than `ndots`.
    pub search: Vec<String>,
    /// Names with fewer dots than this are looked up in the search domains first. Names with as many dots are never looked up
    /// there: a wildcard in a search domain would match names that do not exist.
    pub ndots: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            // About a kilobyte each with the cache's overhead. Caching helps only names that are queried again, and these
            // repetitions follow within a short time.
            cache_entries: 8_192,
            in_flight: 1_024,
            failure_lifetime: Duration::from_secs(1),
            search: Vec::new(),
            ndots: 1,
        }
    }
}
