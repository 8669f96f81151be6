//! Bounds of the cache.

use std::time::Duration;

/// How long things are believed, and how much of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// A credential is answered from the cache for so long, less a random part.
    pub ttl: Duration,
    /// That there is none, likewise. A permission that is granted is noticed then.
    pub negative_ttl: Duration,
    /// After that it is answered for so long while it is made again.
    pub revalidate: Duration,
    /// And so long, counted from when it was read, where the store does not answer.
    pub lifetime: Duration,
    /// Names that are remembered, beside the bound of memory.
    pub entries_max: u64,
    /// Bytes of memory for credentials. Names without one have a quarter of that beside it.
    pub octets_max: u64,
    /// For one question, all its tries together.
    pub deadline: Duration,
    /// Whether changes are followed.
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
            octets_max: 64 << 20,
            deadline: Duration::from_secs(10),
            follow: true,
        }
    }
}
