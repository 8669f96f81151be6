//! Lifetimes and sizes of the credential cache, and the deadline of lookups.

use std::time::Duration;

/// Lifetimes and sizes of the cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Time for which a cached credential is fresh, minus a random part.
    pub ttl: Duration,
    /// Time for which the absence of a credential is cached, minus a random part. A new permission takes effect after this time at
    /// the latest.
    pub negative_ttl: Duration,
    /// Time after `ttl` for which a stale credential is still served while it is refreshed.
    pub revalidate: Duration,
    /// Time for which a credential is served while the store does not respond, counted from its last read.
    pub lifetime: Duration,
    /// Maximum number of cached names, in addition to the memory limit.
    pub entries_max: u64,
    /// Memory for credentials in bytes. Names without a credential get an additional quarter.
    pub bytes_max: u64,
    /// Deadline of one lookup, including all retries.
    pub deadline: Duration,
    /// Whether to follow the stream of changes.
    pub follow: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(60),
            negative_ttl: Duration::from_secs(15),
            revalidate: Duration::from_secs(30),
            lifetime: Duration::from_secs(3_600),
            entries_max: u64::MAX,
            bytes_max: 64 << 20,
            deadline: Duration::from_secs(10),
            follow: true,
        }
    }
}
