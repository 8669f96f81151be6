//! Token buckets by key, bounded in number: the basis of all rate limits of the server.

use std::hash::Hash;

use governor::clock::Clock;
use governor::middleware::{StateInformationMiddleware, StateSnapshot};
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};

#[cfg(not(test))]
type BucketClock = governor::clock::DefaultClock;
/// A clock for unit tests that does not advance, so that the speed of the machine cannot change the number of tokens in a bucket.
#[cfg(test)]
type BucketClock = governor::clock::FakeRelativeClock;

/// A token bucket for each key. While there are `keys_max` keys, all keys share the bucket of `overflow`, until idle keys are
/// removed.
pub(crate) struct KeyedLimit<K: Hash + Eq + Clone> {
    buckets: RateLimiter<K, DashMapStateStore<K>, BucketClock, StateInformationMiddleware>,
    overflow: K,
    keys_max: usize,
    clock: BucketClock,
}

impl<K: Hash + Eq + Clone> KeyedLimit<K> {
    pub(crate) fn new(quota: Quota, overflow: K, keys_max: usize) -> Self {
        let clock = BucketClock::default();
        let buckets = RateLimiter::dashmap_with_clock(quota, clock.clone()).with_middleware();
        Self { buckets, overflow, keys_max, clock }
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
