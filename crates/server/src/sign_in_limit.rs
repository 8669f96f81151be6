//! Rate limits of password attempts: by name and address together, by address, and by name.
//!
//! A user who signed in from an address before is not blocked by guesses at the name from other addresses.

use std::collections::HashSet;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::Quota;
use parking_lot::Mutex;

use crate::keyed_limit::KeyedLimit;
use crate::problem::Problem;

/// Maximum keys of a limiter. While a limiter has this many keys, all keys share one bucket, until idle keys are removed.
const KEYS_MAX: usize = 16_384;

/// Maximum pairs of name and address that have signed in. When it is exceeded, all pairs are removed.
const KNOWN_MAX: usize = 16_384;

/// A slow rate limit: one attempt per interval `every`, and a burst after a pause.
#[derive(Clone, Copy, Debug)]
pub struct SlowRate {
    /// Time until one more attempt is allowed.
    pub every: Duration,
    /// Maximum attempts in a burst.
    pub burst: u32,
}

/// The rate limits of password attempts.
#[derive(Clone, Copy, Debug)]
pub struct SignInRates {
    /// Attempts for one name from one address (a /64 for IPv6).
    pub pair: SlowRate,
    /// Attempts from one address, which a whole office may share.
    pub address: SlowRate,
    /// Attempts for one name, from all addresses without an earlier sign-in of that name.
    pub name: SlowRate,
}

impl Default for SignInRates {
    /// Returns the default limits. A user who mistypes waits at most ten seconds; an attacker has about nine thousand attempts a
    /// day for one name.
    fn default() -> Self {
        Self {
            pair: SlowRate { every: Duration::from_secs(10), burst: 5 },
            address: SlowRate { every: Duration::from_secs(2), burst: 30 },
            name: SlowRate { every: Duration::from_secs(10), burst: 20 },
        }
    }
}

fn limiter<K: Hash + Eq + Clone>(rate: SlowRate, overflow: K) -> KeyedLimit<K> {
    let burst = NonZeroU32::new(rate.burst).unwrap_or(NonZeroU32::MIN);
    let quota = Quota::with_period(rate.every).unwrap_or_else(|| Quota::per_second(burst)).allow_burst(burst);
    KeyedLimit::new(quota, overflow, KEYS_MAX)
}

fn take<K: Hash + Eq + Clone>(limit: &KeyedLimit<K>, key: &K) -> Result<(), Problem> {
    limit.take(key).map(drop).map_err(Problem::too_many)
}

/// The rate limiters of password attempts.
pub(crate) struct SignInLimits {
    pairs: KeyedLimit<(String, IpAddr)>,
    addresses: KeyedLimit<IpAddr>,
    names: KeyedLimit<String>,
    known: Mutex<HashSet<(String, IpAddr)>>,
}

impl SignInLimits {
    pub(crate) fn new(rates: &SignInRates) -> Self {
        let nowhere = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        Self {
            pairs: limiter(rates.pair, (String::new(), nowhere)),
            addresses: limiter(rates.address, nowhere),
            names: limiter(rates.name, String::new()),
            known: Mutex::default(),
        }
    }

    /// Counts an attempt, before the password is checked.
    ///
    /// # Errors
    /// 429 with the seconds to wait.
    pub(crate) fn attempt(&self, name: &str, address: IpAddr) -> Result<(), Problem> {
        let address = inbound::network(address);
        let pair = (name.to_owned(), address);
        take(&self.addresses, &address)?;
        take(&self.pairs, &pair)?;
        if self.known.lock().contains(&pair) { Ok(()) } else { take(&self.names, &pair.0) }
    }

    /// Counts a request for a challenge of a security key, whose user is not known yet.
    ///
    /// # Errors
    /// 429 with the seconds to wait.
    pub(crate) fn challenge(&self, address: IpAddr) -> Result<(), Problem> {
        take(&self.addresses, &inbound::network(address))
    }

    /// Records a successful sign-in.
    pub(crate) fn succeeded(&self, name: &str, address: IpAddr) {
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert((name.to_owned(), inbound::network(address)));
    }

    /// Removes the token buckets of names and addresses without recent attempts.
    pub(crate) fn forget_idle(&self) {
        self.pairs.forget_idle();
        self.addresses.forget_idle();
        self.names.forget_idle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_logins_from_other_addresses_do_not_block_a_known_address() {
        let hour = |burst| SlowRate { every: Duration::from_secs(3_600), burst };
        let limits = SignInLimits::new(&SignInRates { pair: hour(3), address: hour(100), name: hour(4) });
        let address = |n: u8| IpAddr::from([192, 0, 2, n]);
        limits.attempt("ann", address(1)).unwrap();
        limits.succeeded("ann", address(1));
        // Three attempts from one address, four from all unknown addresses.
        for n in [2, 2, 2] {
            limits.attempt("ann", address(n)).unwrap();
        }
        assert_eq!(limits.attempt("ann", address(2)).unwrap_err().kind(), "rate-limited");
        assert!(limits.attempt("ann", address(3)).is_err());
        limits.attempt("ann", address(1)).unwrap();
        limits.attempt("bob", address(2)).unwrap();
    }
}
