//! How often who is not known may try.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use flight::{BoundedMap, Eviction};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::certificate_store::NewNameLimit;

/// Clients that are remembered; of those, the ones that tried the longest ago are forgotten.
const CLIENTS_MAX: u64 = 65_536;
/// Tries that fail, at once.
const BURST: f64 = 20.0;
/// And how long until there is another.
const ANOTHER: Duration = Duration::from_secs(3);

/// Passwords of one client that wait to be looked at, or are.
const WAITING_OF_ONE_MAX: usize = 16;
/// Of all of them.
const WAITING_MAX: usize = 256;

/// Passwords that wait to be looked at; more are told to come back.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Waits {
    client: IpAddr,
    all: Waiting,
}

impl Waiting {
    /// None where there are as many as there may be.
    pub(super) fn enter(&self, client: IpAddr) -> Option<Waits> {
        let client = NewNameLimit::of(client);
        let mut all = self.0.lock();
        if all.values().sum::<usize>() >= WAITING_MAX {
            return None;
        }
        let of_client = all.entry(client).or_default();
        if *of_client >= WAITING_OF_ONE_MAX {
            return None;
        }
        *of_client += 1;
        Some(Waits { client, all: self.clone() })
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(waiting) = all.get_mut(&self.client) {
            *waiting -= 1;
            if *waiting == 0 {
                all.remove(&self.client);
            }
        }
    }
}

/// Of each client (an IPv4 address, or an IPv6 network of 64 bits) so many may fail.
#[derive(Clone, Debug)]
pub(super) struct Attempts(BoundedMap<IpAddr, Arc<Mutex<Left>>>);

#[derive(Debug)]
struct Left {
    tries: f64,
    at: Instant,
}

impl Left {
    /// With those that came since.
    fn now(&mut self) -> f64 {
        let now = Instant::now();
        let came = now.duration_since(self.at).as_secs_f64() / ANOTHER.as_secs_f64();
        self.tries = (self.tries + came).min(BURST);
        self.at = now;
        self.tries
    }
}

impl Attempts {
    pub(super) fn new() -> Self {
        let refilled = ANOTHER.mul_f64(BURST) + ANOTHER;
        // The default policy may refuse a newcomer, who could then try for ever.
        let cache = BoundedMap::builder(CLIENTS_MAX).time_to_idle(refilled).eviction(Eviction::LeastRecent);
        Self(cache.build())
    }

    /// Whether one may be made; it counts as failed until [`Self::succeeded`].
    pub(super) fn begin(&self, client: IpAddr) -> bool {
        let left = self.of(client);
        let mut left = left.lock();
        let may = left.now() >= 1.0;
        left.tries -= if may { 1.0 } else { 0.0 };
        may
    }

    /// Whether one could be made.
    pub(super) fn may_begin(&self, client: IpAddr) -> bool {
        self.of(client).lock().now() >= 1.0
    }

    /// It did not fail after all.
    pub(super) fn succeeded(&self, client: IpAddr) {
        let left = self.of(client);
        let mut left = left.lock();
        left.tries = (left.tries + 1.0).min(BURST);
    }

    fn of(&self, client: IpAddr) -> Arc<Mutex<Left>> {
        let new = || Arc::new(Mutex::new(Left { tries: BURST, at: Instant::now() }));
        self.0.get_with(NewNameLimit::of(client), new)
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
        assert!(!attempts.may_begin(one) && attempts.may_begin(other));
        assert!(attempts.begin(other));
        tokio::time::advance(ANOTHER).await;
        assert!(attempts.may_begin(one), "a look takes nothing");
        assert!(attempts.begin(one));
        assert!(!attempts.begin(one));
    }

    #[test]
    fn one_client_leaves_places_to_others_and_all_of_them_are_bounded() {
        let waiting = Waiting::default();
        let (one, other) = ("2001:db8::1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut waits: Vec<_> = (0..WAITING_OF_ONE_MAX).map(|_| waiting.enter(one).unwrap()).collect();
        assert!(waiting.enter(one).is_none() && waiting.enter("2001:db8::2".parse().unwrap()).is_none());
        drop(waiting.enter(other).unwrap());
        waits.pop();
        waits.extend(waiting.enter(one));
        let more = (0..255).flat_map(|last| [last; WAITING_OF_ONE_MAX]);
        waits.extend(more.map_while(|last| waiting.enter(IpAddr::from([10, 0, 1, last]))));
        assert_eq!(waits.len(), WAITING_MAX);
        drop(waits);
        assert!(waiting.0.lock().is_empty());
    }
}
