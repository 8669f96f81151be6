//! Token buckets by key, bounded in number: the basis of all rate limits of the server.

use std::hash::Hash;

use governor::clock::Clock;
use governor::middleware::{StateInformationMiddleware, StateSnapshot};
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::state::keyed::{DashMapStateStore, ShrinkableKeyedStateStore};
use governor::{Quota, RateLimiter};

#[cfg(not(test))]
type BucketClock = governor::clock::DefaultClock;
/// A clock for unit tests that does not advance, so that the speed of the machine cannot change the number of tokens in a bucket.
#[cfg(test)]
type BucketClock = governor::clock::FakeRelativeClock;

/// A token bucket for each key. Beyond `keys_max` keys, new keys share the bucket of `overflow` until idle keys are removed. A key
/// that has a bucket keeps it.
pub(crate) struct KeyedLimit<K: Hash + Eq + Clone> {
    buckets: RateLimiter<K, Buckets<K>, BucketClock, StateInformationMiddleware>,
    clock: BucketClock,
}

/// The buckets, bounded in number.
struct Buckets<K: Hash + Eq + Clone> {
    of_keys: DashMapStateStore<K>,
    overflow: K,
    keys_max: usize,
}

impl<K: Hash + Eq + Clone> StateStore for Buckets<K> {
    type Key = K;

    fn measure_and_replace<T, F, E>(&self, key: &K, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let has_bucket = self.of_keys.len() < self.keys_max || self.of_keys.contains_key(key);
        self.of_keys.measure_and_replace(if has_bucket { key } else { &self.overflow }, measure)
    }
}

impl<K: Hash + Eq + Clone> ShrinkableKeyedStateStore<K> for Buckets<K> {
    fn retain_recent(&self, drop_below: Nanos) {
        self.of_keys.retain_recent(drop_below);
    }

    fn len(&self) -> usize {
        self.of_keys.len()
    }

    fn is_empty(&self) -> bool {
        self.of_keys.is_empty()
    }
}

impl<K: Hash + Eq + Clone> KeyedLimit<K> {
    pub(crate) fn new(quota: Quota, overflow: K, keys_max: usize) -> Self {
        let clock = BucketClock::default();
        let buckets = Buckets { of_keys: DashMapStateStore::default(), overflow, keys_max };
        Self { buckets: RateLimiter::new(quota, buckets, clock.clone()), clock }
    }

    /// Takes a token of `key` and returns the state of its bucket.
    ///
    /// # Errors
    /// The seconds until the next token.
    pub(crate) fn take(&self, key: &K) -> Result<StateSnapshot, u64> {
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;

    #[test]
    fn rejected_requests_are_told_when_the_next_token_comes() {
        let burst = NonZeroU32::new(2).unwrap();
        let limit =
            KeyedLimit::new(Quota::with_period(Duration::from_secs(3)).unwrap().allow_burst(burst), "", 100);
        assert!(limit.take(&"a").is_ok() && limit.take(&"a").is_ok());
        assert_eq!(limit.take(&"a").unwrap_err(), 3);
        limit.clock.advance(Duration::from_millis(1_500));
        assert_eq!(limit.take(&"a").unwrap_err(), 2, "rounded up");
        limit.clock.advance(Duration::from_millis(1_500));
        assert!(limit.take(&"a").is_ok());
        assert_eq!(limit.take(&"a").unwrap_err(), 3);
    }

    #[test]
    fn keys_with_a_bucket_keep_it_when_there_are_too_many() {
        let limit = KeyedLimit::new(Quota::per_hour(NonZeroU32::new(2).unwrap()), 0, 2);
        assert!(limit.take(&1).is_ok() && limit.take(&2).is_ok());
        assert!(limit.take(&3).is_ok() && limit.take(&4).is_ok() && limit.take(&5).is_err());
        assert!(limit.take(&1).is_ok(), "the second token of its own bucket");
        assert!(limit.take(&1).is_err());
    }

    #[test]
    fn new_keys_share_a_bucket_when_there_are_too_many() {
        let limit = KeyedLimit::new(Quota::per_hour(NonZeroU32::MIN), 0, 2);
        assert!(limit.take(&1).is_ok() && limit.take(&2).is_ok());
        assert!(limit.take(&3).is_ok(), "the shared bucket");
        assert!(limit.take(&4).is_err(), "the shared bucket is empty");
        limit.clock.advance(Duration::from_secs(7_200));
        limit.forget_idle();
        assert!(limit.take(&5).is_ok() && limit.take(&6).is_ok());
    }
}
