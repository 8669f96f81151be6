//! How often is tried again, and when.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use parking_lot::Mutex;

/// Tries again that may be made at once after a quiet time.
const TOKENS_MAX: f64 = 10.0;
/// Earned by a request: in the long run one try again for ten requests.
const EARNED: f64 = 0.1;

/// Tries again in proportion to requests: a store that is down is not asked four times as often as one that is up.
pub(super) struct Budget(Mutex<f64>);

impl Default for Budget {
    fn default() -> Self {
        Self(Mutex::new(TOKENS_MAX))
    }
}

impl Budget {
    pub(super) fn request(&self) {
        let mut tokens = self.0.lock();
        *tokens = (*tokens + EARNED).min(TOKENS_MAX);
    }

    /// Whether there is one left.
    pub(super) fn retry(&self) -> bool {
        let mut tokens = self.0.lock();
        let left = *tokens >= 1.0;
        if left {
            *tokens -= 1.0;
        }
        left
    }
}

/// A random time between `whole` less this part of it, and `whole`.
pub(crate) fn jitter(whole: Duration, part: f64) -> Duration {
    // Keys of the standard library's maps are random; nothing secret hangs on these numbers.
    let random = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
    whole.mul_f64((1.0 - part * random).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_try_again_for_ten_requests() {
        let budget = Budget::default();
        let made = (0..1_000).filter(|_| {
            budget.request();
            budget.retry()
        });
        let made = made.count();
        assert!((105..=110).contains(&made), "{made}");
    }

    #[test]
    fn jitter_stays_within_its_part() {
        let all: Vec<_> = (0..1_000).map(|_| jitter(Duration::from_secs(10), 0.2)).collect();
        assert!(all.iter().all(|one| (8.0..=10.0).contains(&one.as_secs_f64())));
        assert!(all.iter().max() > all.iter().min());
    }
}
