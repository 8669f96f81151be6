//! The settings of a resolver.

use std::time::Duration;

/// How to resolve; `Default` suits a scan.
#[derive(Clone, Debug)]
pub struct Options {
    /// Answers remembered, "there is none" included; a few hundred bytes each.
    pub cache_entries: u64,
    /// Questions under way at once; further ones wait.
    pub in_flight: usize,
    /// How long a failure to find out (SERVFAIL, refused, unreadable) is remembered, so that a thousand
    /// targets in one broken zone ask once. RFC 2308 section 7 allows five minutes.
    pub failure_lifetime: Duration,
    /// Domains for names with fewer dots than `ndots`.
    pub search: Vec<String>,
    /// Names with fewer dots than this are first looked for in the search domains. Names with as many are
    /// never: a wildcard there would answer for a name that does not exist.
    pub ndots: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            // About a kilobyte each with what the cache itself needs. A name that is asked for once gains
            // nothing by being remembered; those asked for again come soon.
            cache_entries: 8_192,
            in_flight: 1_024,
            failure_lifetime: Duration::from_secs(1),
            search: Vec::new(),
            ndots: 1,
        }
    }
}
