//! Rate limits of clients: the generic cell rate algorithm (GCRA) in memory, separate on each node.
//!
//! A limit of `count` in `seconds` allows `count` events immediately and then one every `seconds / count`. Nodes do not share
//! counts: a client that sends requests to several nodes gets the limit once per node.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;

use super::options::Limit;
pub(crate) use crate::tables::acme::AcmeLimit as Kind;

/// Maximum number of clients and names in memory, about 100 bytes each. When all are active, the entries that expire first are
/// removed; their clients and names may then exceed the limit.
const ENTRIES_MAX: usize = 100_000;

/// Key of a rate-limit counter: the kind of limit, its subject, and the configured limit.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Key {
    pub(crate) kind: Kind,
    pub(crate) subject: Box<str>,
    /// The limit. A changed limit starts a new count.
    pub(crate) limit: Limit,
}

/// Rate limiter. For each key it stores the time in microseconds at which the full count is available again.
#[derive(Default)]
pub(crate) struct Limiter {
    full_at: Mutex<HashMap<Key, i64>>,
}

impl Limiter {
    /// Counts one event, or returns the number of seconds to wait.
    pub(crate) fn take(&self, key: Key, now_us: i64) -> Result<(), u64> {
        let mut all = self.full_at.lock();
        let full_at = all.get(&key).copied().unwrap_or(now_us);
        let next = step(full_at, key.limit, now_us)?;
        if all.len() >= ENTRIES_MAX && !all.contains_key(&key) {
            evict(&mut all, now_us);
        }
        all.insert(key, next);
        Ok(())
    }

    /// Checks that an event is allowed, without counting it. Returns the number of seconds to wait if it is not.
    pub(crate) fn check(&self, key: &Key, now_us: i64) -> Result<(), u64> {
        let full_at = self.full_at.lock().get(key).copied().unwrap_or(now_us);
        step(full_at, key.limit, now_us).map(drop)
    }

    /// Returns the number of active entries.
    pub(crate) fn len(&self) -> usize {
        self.full_at.lock().len()
    }
}

/// Applies the generic cell rate algorithm. Returns the time in microseconds at which the full count is available again, or the
/// number of seconds to wait.
fn step(full_at: i64, limit: Limit, now_us: i64) -> Result<i64, u64> {
    let whole = i64::from(limit.seconds) * 1_000_000;
    if limit.count == 0 {
        return Err(u64::from(limit.seconds).max(1));
    }
    let each = whole / i64::from(limit.count);
    let next = full_at.max(now_us) + each;
    let over = next - whole - now_us;
    if over > 0 { Err(u64::try_from(over).unwrap_or(0).div_ceil(1_000_000)) } else { Ok(next) }
}

fn evict(all: &mut HashMap<Key, i64>, now_us: i64) {
    all.retain(|_, full_at| *full_at > now_us);
    if all.len() < ENTRIES_MAX {
        return;
    }
    let mut ends: Vec<i64> = all.values().copied().collect();
    let middle = ends.len() / 2;
    let (_, median, _) = ends.select_nth_unstable(middle);
    let median = *median;
    all.retain(|_, full_at| *full_at > median);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { count: 3, seconds: 60 };
    const SECOND: i64 = 1_000_000;

    fn key(subject: &str) -> Key {
        Key { kind: Kind::Orders, subject: subject.into(), limit: LIMIT }
    }

    #[test]
    fn limiter_allows_a_burst_and_then_one_per_interval() {
        let limiter = Limiter::default();
        for _ in 0..3 {
            limiter.take(key("a"), 0).unwrap();
        }
        assert_eq!(limiter.take(key("a"), 0), Err(20));
        assert_eq!(limiter.check(&key("a"), 19 * SECOND), Err(1));
        limiter.take(key("b"), 0).unwrap();
        limiter.take(key("a"), 20 * SECOND).unwrap();
        assert_eq!(limiter.take(key("a"), 20 * SECOND), Err(20));
        for _ in 0..3 {
            limiter.take(key("a"), 1_000 * SECOND).unwrap();
        }
        assert!(limiter.take(key("a"), 1_000 * SECOND).is_err());
    }

    #[test]
    fn zero_limit_rejects_everything() {
        let none = Limit { count: 0, seconds: 60 };
        let key = Key { limit: none, ..key("a") };
        assert_eq!(Limiter::default().take(key, 0), Err(60));
    }

    #[test]
    fn limiter_memory_is_bounded() {
        let limiter = Limiter::default();
        for number in 0..ENTRIES_MAX + 10 {
            limiter.take(key(&number.to_string()), number as i64).unwrap();
        }
        assert!(limiter.len() <= ENTRIES_MAX);
        // The newest entries are kept.
        let newest = key(&(ENTRIES_MAX + 9).to_string());
        for _ in 0..2 {
            limiter.take(newest.clone(), ENTRIES_MAX as i64 + 10).unwrap();
        }
        assert!(limiter.take(newest, ENTRIES_MAX as i64 + 10).is_err());
    }
}
