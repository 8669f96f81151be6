//! Retry budget: at most a tenth of all requests may be retried, so that failing servers do not get a second full load.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Credits that one retry costs. Each new request earns one credit.
const COST: u32 = 10;
/// Maximum retries in a burst. The budget is full at startup, and is refilled by requests only.
const BURST: u32 = 10;

/// Retry credits: each request earns one, and a retry costs ten.
#[derive(Debug)]
pub struct Budget(AtomicU32);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicU32::new(BURST * COST))
    }
}

impl Budget {
    /// Adds the credit of a new request, unless the budget is full.
    pub fn earn(&self) {
        // A full budget is the usual case, and needs no write.
        let more = |tokens: u32| (tokens < BURST * COST).then_some(tokens + 1);
        let _ = self.0.fetch_update(Relaxed, Relaxed, more);
    }

    /// Returns whether a retry is permitted. If so, deducts its cost from the budget.
    pub fn spend(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |tokens| tokens.checked_sub(COST)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_budget_is_one_tenth_of_requests_plus_a_burst() {
        let budget = Budget::default();
        let spent = |requests: u32| {
            let tries = (0..requests).filter(|_| {
                budget.earn();
                budget.spend()
            });
            tries.count()
        };
        assert_eq!(spent(10_000), 1_000 + BURST as usize - 1);
        (0..10_000).for_each(|_| budget.earn());
        let at_once = (0..100).filter(|_| budget.spend()).count();
        assert_eq!(at_once, BURST as usize);
    }
}
