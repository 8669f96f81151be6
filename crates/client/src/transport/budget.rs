//! The retry budget and the delay of retries.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use parking_lot::Mutex;

/// Maximum number of retries in a burst.
const TOKENS_MAX: f64 = 10.0;
/// Fraction of a retry that each request adds to the budget: in the long run, one retry for ten requests.
const RETRY_RATIO: f64 = 0.1;

/// A limit on retries in proportion to requests, so that a failing store does not get a multiple of the usual load.
pub(super) struct Budget(Mutex<f64>);

impl Default for Budget {
    fn default() -> Self {
        Self(Mutex::new(TOKENS_MAX))
    }
}

impl Budget {
    pub(super) fn request(&self) {
        let mut tokens = self.0.lock();
        *tokens = (*tokens + RETRY_RATIO).min(TOKENS_MAX);
    }

    /// Takes one retry from the budget. Returns false if none is left.
    pub(super) fn retry(&self) -> bool {
        let mut tokens = self.0.lock();
        let left = *tokens >= 1.0;
        if left {
            *tokens -= 1.0;
        }
        left
    }
}

/// Returns a random time between `whole * (1 - part)` and `whole`.
pub(crate) fn jitter(whole: Duration, part: f64) -> Duration {
    // The hash keys of the standard library are random. These numbers need not be secret.
    let random = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
    whole.mul_f64((1.0 - part * random).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_budget_allows_one_retry_per_ten_requests() {
        let budget = Budget::default();
        let made = (0..1_000).filter(|_| {
            budget.request();
            budget.retry()
        });
        let made = made.count();
        assert!((105..=110).contains(&made), "{made}");
    }

    #[test]
    fn jitter_shortens_by_at_most_the_given_fraction() {
        let all: Vec<_> = (0..1_000).map(|_| jitter(Duration::from_secs(10), 0.2)).collect();
        assert!(all.iter().all(|one| (8.0..=10.0).contains(&one.as_secs_f64())));
        assert!(all.iter().max() > all.iter().min());
    }
}
