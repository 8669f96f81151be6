//! How often who is not known may try.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::certificate_store::Newcomers;

/// Clients that are remembered; of those, the ones that tried the longest ago are forgotten.
const CLIENTS_MAX: u64 = 65_536;
/// Tries that fail, at once.
const BURST: f64 = 20.0;
/// And how long until there is another.
const ANOTHER: Duration = Duration::from_secs(3);

/// Of each client (an IPv4 address, or an IPv6 network of 64 bits) so many may fail.
#[derive(Clone, Debug)]
pub(super) struct Attempts(Cache<IpAddr, Arc<Mutex<Left>>>);

#[derive(Debug)]
struct Left {
    tries: f64,
    at: Instant,
}

impl Attempts {
    pub(super) fn new() -> Self {
        let refilled = ANOTHER.mul_f64(BURST) + ANOTHER;
        // The default policy may refuse a newcomer, who could then try for ever.
        let cache = Cache::builder()
            .max_capacity(CLIENTS_MAX)
            .time_to_idle(refilled)
            .eviction_policy(EvictionPolicy::lru());
        Self(cache.build())
    }

    /// Whether one may be made; it counts as failed until [`Self::succeeded`].
    pub(super) fn begin(&self, client: IpAddr) -> bool {
        let left = self.of(client);
        let mut left = left.lock();
        let now = Instant::now();
        let came = now.duration_since(left.at).as_secs_f64() / ANOTHER.as_secs_f64();
        left.tries = (left.tries + came).min(BURST);
        left.at = now;
        let may = left.tries >= 1.0;
        left.tries -= if may { 1.0 } else { 0.0 };
        may
    }

    /// It did not fail after all.
    pub(super) fn succeeded(&self, client: IpAddr) {
        let left = self.of(client);
        let mut left = left.lock();
        left.tries = (left.tries + 1.0).min(BURST);
    }

    fn of(&self, client: IpAddr) -> Arc<Mutex<Left>> {
        let new = || Arc::new(Mutex::new(Left { tries: BURST, at: Instant::now() }));
        self.0.get_with(Newcomers::of(client), new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tries_that_fail_are_limited_and_those_that_succeed_are_not() {
        let attempts = Attempts::new();
        let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        for _ in 0..1_000 {
            assert!(attempts.begin(one));
            attempts.succeeded(one);
        }
        let failing = (0..1_000).filter(|_| attempts.begin(one)).count();
        assert_eq!(failing, BURST as usize);
        assert!(attempts.begin(other));
        tokio::time::advance(ANOTHER).await;
        assert!(attempts.begin(one));
        assert!(!attempts.begin(one));
    }
}
