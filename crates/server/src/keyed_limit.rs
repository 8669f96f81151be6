//! Token buckets by key, bounded in number: the basis of all rate limits of the server.

use std::hash::Hash;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::{StateInformationMiddleware, StateSnapshot};
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};

/// A token bucket for each key. Beyond `keys_max` keys, new keys share the bucket of `overflow` until idle ones are removed.
pub(crate) struct KeyedLimit<K: Hash + Eq + Clone> {
    buckets: RateLimiter<K, DashMapStateStore<K>, DefaultClock, StateInformationMiddleware>,
    overflow: K,
    keys_max: usize,
    clock: DefaultClock,
}

impl<K: Hash + Eq + Clone> KeyedLimit<K> {
    pub(crate) fn new(quota: Quota, overflow: K, keys_max: usize) -> Self {
        let buckets = RateLimiter::dashmap(quota).with_middleware::<StateInformationMiddleware>();
        Self { buckets, overflow, keys_max, clock: DefaultClock::default() }
    }

    /// Takes a token of `key` and returns the state of its bucket.
    ///
    /// # Errors
    /// The seconds until the next token.
    pub(crate) fn take(&self, key: &K) -> Result<StateSnapshot, u64> {
        let key = if self.buckets.len() < self.keys_max { key } else { &self.overflow };
        self.buckets.check_key(key).map_err(|until| {
            let wait = until.wait_time_from(self.clock.now());
            wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
        })
    }

    /// Removes keys whose buckets are full.
    pub(crate) fn forget_idle(&self) {
        self.buckets.retain_recent();
    }
}
