//! Rate limits: how often one address, and one caller, may ask.

use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::{StateInformationMiddleware, StateSnapshot};
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

use crate::problem::Problem;

/// Keys a limiter remembers, some hundred octets each. Past it newcomers share one allowance, until those that are idle
/// are forgotten.
const KEYS_MAX: usize = 65_536;

const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// An allowance: a steady rate, and how much may come at once.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Requests a second.
    pub per_second: NonZeroU32,
    /// Requests at once after a pause.
    pub burst: NonZeroU32,
}

impl Rate {
    /// Zeroes count as one.
    #[must_use]
    pub const fn new(per_second: u32, burst: u32) -> Self {
        const fn one_or(number: u32) -> NonZeroU32 {
            match NonZeroU32::new(number) {
                Some(number) => number,
                None => NonZeroU32::MIN,
            }
        }
        Self { per_second: one_or(per_second), burst: one_or(burst) }
    }
}

/// The limits in force. `None` switches one off.
#[derive(Clone, Copy, Debug)]
pub struct LimitOptions {
    /// For one caller.
    pub caller: Option<Rate>,
    /// For one address (a /64 for IPv6): before anybody is known, so generous enough for an office behind one address.
    pub address: Option<Rate>,
    /// For refused credentials from one address: guessing is slow, a broken client is cheap.
    pub failures: Option<Rate>,
}

impl Default for LimitOptions {
    /// 200/s and 400 at once for a caller; 1,000/s and 2,000 for an address; 5/s and 50 failures.
    fn default() -> Self {
        Self {
            caller: Some(Rate::new(200, 400)),
            address: Some(Rate::new(1_000, 2_000)),
            failures: Some(Rate::new(5, 50)),
        }
    }
}

/// What is left of an allowance, for the answer's headers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Left {
    limit: u32,
    remaining: u32,
    reset_seconds: u64,
}

impl Left {
    pub(crate) fn tell(self, headers: &mut HeaderMap) {
        headers.insert(LIMIT, HeaderValue::from(self.limit));
        headers.insert(REMAINING, HeaderValue::from(self.remaining));
        headers.insert(RESET, HeaderValue::from(self.reset_seconds));
    }
}

type Keyed<K> = RateLimiter<K, DashMapStateStore<K>, DefaultClock, StateInformationMiddleware>;

/// A limiter by key, bounded.
pub(crate) struct Limiter<K: Hash + Eq + Clone> {
    rate: Rate,
    keyed: Keyed<K>,
    overflow: K,
    clock: DefaultClock,
}

impl<K: Hash + Eq + Clone> Limiter<K> {
    fn new(rate: Rate, overflow: K) -> Self {
        let quota = Quota::per_second(rate.per_second).allow_burst(rate.burst);
        let keyed = RateLimiter::dashmap(quota).with_middleware::<StateInformationMiddleware>();
        Self { rate, keyed, overflow, clock: DefaultClock::default() }
    }

    /// Takes one from the allowance of `key`; else the seconds until there is one.
    fn take(&self, key: &K) -> Result<Left, u64> {
        let key = if self.keyed.len() < KEYS_MAX { key } else { &self.overflow };
        match self.keyed.check_key(key) {
            Ok(snapshot) => Ok(self.left(&snapshot)),
            Err(until) => Err(seconds(until.wait_time_from(self.clock.now()))),
        }
    }

    fn left(&self, snapshot: &StateSnapshot) -> Left {
        let (limit, remaining) = (self.rate.burst.get(), snapshot.remaining_burst_capacity());
        let missing = u64::from(limit - remaining.min(limit));
        Left { limit, remaining, reset_seconds: missing.div_ceil(u64::from(self.rate.per_second.get())) }
    }
}

fn seconds(wait: std::time::Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// The server's limiters.
pub(crate) struct Limits {
    callers: Option<Limiter<Uuid>>,
    addresses: Option<Limiter<IpAddr>>,
    failures: Option<Limiter<IpAddr>>,
}

impl Limits {
    pub(crate) fn new(options: &LimitOptions) -> Self {
        let nowhere = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        Self {
            callers: options.caller.map(|rate| Limiter::new(rate, Uuid::nil())),
            addresses: options.address.map(|rate| Limiter::new(rate, nowhere)),
            failures: options.failures.map(|rate| Limiter::new(rate, nowhere)),
        }
    }

    /// A request from this address.
    pub(crate) fn address(&self, address: IpAddr) -> Result<(), Problem> {
        check(self.addresses.as_ref(), &inbound::network(address)).map(drop)
    }

    /// A request of this caller.
    pub(crate) fn caller(&self, id: Uuid) -> Result<Option<Left>, Problem> {
        check(self.callers.as_ref(), &id)
    }

    /// A credential refused; tells when the address has had too many.
    pub(crate) fn failure(&self, address: IpAddr) -> Result<(), Problem> {
        check(self.failures.as_ref(), &inbound::network(address)).map(drop)
    }

    /// Forgets whoever has their whole allowance again.
    pub(crate) fn forget_idle(&self) {
        self.callers.iter().for_each(|limiter| limiter.keyed.retain_recent());
        self.addresses.iter().chain(&self.failures).for_each(|limiter| limiter.keyed.retain_recent());
    }
}

fn check<K: Hash + Eq + Clone>(limiter: Option<&Limiter<K>>, key: &K) -> Result<Option<Left>, Problem> {
    limiter.map(|limiter| limiter.take(key)).transpose().map_err(Problem::too_many)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(rate: Rate) -> Limits {
        Limits::new(&LimitOptions { caller: Some(rate), address: Some(rate), failures: None })
    }

    #[test]
    fn a_burst_goes_through_and_then_no_more() {
        let limits = limits(Rate::new(1, 3));
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let left: Vec<_> = (0..3).map(|_| limits.caller(a).unwrap().unwrap().remaining).collect();
        assert_eq!(left, [2, 1, 0]);
        let problem = limits.caller(a).unwrap_err();
        assert_eq!(problem.status(), 429);
        assert!(limits.caller(b).is_ok(), "others are not held up");
        for _ in 0..1_000 {
            assert!(limits.failure(IpAddr::from([127, 0, 0, 1])).is_ok(), "switched off");
        }
    }

    #[test]
    fn headers_say_what_is_left() {
        let mut headers = HeaderMap::new();
        let limits = limits(Rate::new(2, 10));
        limits.caller(Uuid::nil()).unwrap().unwrap().tell(&mut headers);
        assert_eq!(headers[LIMIT], "10");
        assert_eq!(headers[REMAINING], "9");
        assert_eq!(headers[RESET], "1");
    }
}
