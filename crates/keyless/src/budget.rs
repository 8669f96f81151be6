//! How many requests may be asked twice: a tenth of all, so that servers which fail get no second load of the first one's
//! size.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// What a second try costs, where a request brings 1.
const COST: u32 = 10;
/// Second tries that may come at once, after calm and at the start.
const BURST: u32 = 10;

/// Second tries that may be made, in tenths.
#[derive(Debug)]
pub struct Budget(AtomicU32);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicU32::new(BURST * COST))
    }
}

impl Budget {
    /// A request was begun.
    pub fn earn(&self) {
        // Full is the usual case, and touches nothing.
        let more = |held: u32| (held < BURST * COST).then_some(held + 1);
        let _ = self.0.fetch_update(Relaxed, Relaxed, more);
    }

    /// Whether a second try may be made; it is counted then.
    pub fn spend(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |held| held.checked_sub(COST)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_all_requests_is_tried_again() {
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
