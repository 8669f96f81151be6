//! How often passwords may be tried: by name and address together, by address, by name.
//!
//! A user who signed in from an address before is not held up by strangers who guess at the name from elsewhere.

use std::collections::HashSet;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use parking_lot::Mutex;

use crate::problem::Problem;

/// Keys that a limiter remembers. Past it newcomers share one allowance, until those that are idle are forgotten.
const KEYS_MAX: usize = 16_384;

/// Pairs of a name and an address that signed in; when there are more all are forgotten.
const KNOWN_MAX: usize = 16_384;

/// One try after each `every`, and `burst` at once after a pause.
#[derive(Clone, Copy, Debug)]
pub struct SlowRate {
    /// Until one more try.
    pub every: Duration,
    /// Tries at once.
    pub burst: u32,
}

/// How often passwords may be tried.
#[derive(Clone, Copy, Debug)]
pub struct SignInRates {
    /// For one name from one address (a /64 for IPv6).
    pub pair: SlowRate,
    /// For one address: an office signs in behind one.
    pub address: SlowRate,
    /// For one name from all addresses from which nobody has signed in by it.
    pub name: SlowRate,
}

impl Default for SignInRates {
    /// A person who mistypes waits ten seconds at most; a guesser has some nine thousand tries a day for one name.
    fn default() -> Self {
        Self {
            pair: SlowRate { every: Duration::from_secs(10), burst: 5 },
            address: SlowRate { every: Duration::from_secs(2), burst: 30 },
            name: SlowRate { every: Duration::from_secs(10), burst: 20 },
        }
    }
}

struct Limiter<K: Hash + Eq + Clone> {
    keyed: DefaultKeyedRateLimiter<K>,
    overflow: K,
    clock: DefaultClock,
}

impl<K: Hash + Eq + Clone> Limiter<K> {
    fn new(rate: SlowRate, overflow: K) -> Self {
        let burst = NonZeroU32::new(rate.burst).unwrap_or(NonZeroU32::MIN);
        let quota =
            Quota::with_period(rate.every).unwrap_or_else(|| Quota::per_second(burst)).allow_burst(burst);
        Self { keyed: RateLimiter::keyed(quota), overflow, clock: DefaultClock::default() }
    }

    fn take(&self, key: &K) -> Result<(), Problem> {
        let key = if self.keyed.len() < KEYS_MAX { key } else { &self.overflow };
        self.keyed.check_key(key).map_err(|until| {
            let wait = until.wait_time_from(self.clock.now());
            Problem::too_many(wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
        })
    }
}

/// The limits in force.
pub(crate) struct SignInLimits {
    pairs: Limiter<(String, IpAddr)>,
    addresses: Limiter<IpAddr>,
    names: Limiter<String>,
    known: Mutex<HashSet<(String, IpAddr)>>,
}

impl SignInLimits {
    pub(crate) fn new(rates: &SignInRates) -> Self {
        let nowhere = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        Self {
            pairs: Limiter::new(rates.pair, (String::new(), nowhere)),
            addresses: Limiter::new(rates.address, nowhere),
            names: Limiter::new(rates.name, String::new()),
            known: Mutex::default(),
        }
    }

    /// Before a password is looked at.
    ///
    /// # Errors
    /// 429 with the seconds to wait.
    pub(crate) fn attempt(&self, name: &str, address: IpAddr) -> Result<(), Problem> {
        let address = inbound::network(address);
        let pair = (name.to_owned(), address);
        self.addresses.take(&address)?;
        self.pairs.take(&pair)?;
        if self.known.lock().contains(&pair) { Ok(()) } else { self.names.take(&pair.0) }
    }

    /// The password was right.
    pub(crate) fn succeeded(&self, name: &str, address: IpAddr) {
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert((name.to_owned(), inbound::network(address)));
    }

    /// Forgets anyone who has their whole allowance again.
    pub(crate) fn forget_idle(&self) {
        self.pairs.keyed.retain_recent();
        self.addresses.keyed.retain_recent();
        self.names.keyed.retain_recent();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_do_not_hold_up_a_user_from_a_known_address() {
        let hour = |burst| SlowRate { every: Duration::from_secs(3_600), burst };
        let limits = SignInLimits::new(&SignInRates { pair: hour(3), address: hour(100), name: hour(4) });
        let address = |n: u8| IpAddr::from([192, 0, 2, n]);
        limits.attempt("ann", address(1)).unwrap();
        limits.succeeded("ann", address(1));
        // From one address three tries, from all that are not known four.
        for n in [2, 2, 2] {
            limits.attempt("ann", address(n)).unwrap();
        }
        assert_eq!(limits.attempt("ann", address(2)).unwrap_err().kind(), "rate-limited");
        assert!(limits.attempt("ann", address(3)).is_err());
        limits.attempt("ann", address(1)).unwrap();
        limits.attempt("bob", address(2)).unwrap();
    }
}
