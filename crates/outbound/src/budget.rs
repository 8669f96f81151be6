//! How much may be under way at once, learned from what the network and the system bear.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The budget never falls below this, so that a scan always goes on.
pub const LIMIT_MIN: usize = 8;
/// Successes it takes to win back one place after a cut: slow enough not to swing.
const SUCCESSES_PER_PLACE: usize = 4;

/// A bound that is halved when the system pushes back (out of descriptors, ports or buffers) and
/// grows back slowly: additive increase, multiplicative decrease, as TCP does (RFC 5681).
#[derive(Debug)]
pub struct Adaptive {
    maximum: usize,
    limit: AtomicUsize,
    /// Successes since the last change.
    successes: AtomicUsize,
    push_backs: AtomicUsize,
}

impl Adaptive {
    /// A budget that starts at its maximum.
    #[must_use]
    pub fn new(maximum: usize) -> Self {
        let maximum = maximum.max(1);
        Self {
            maximum,
            limit: AtomicUsize::new(maximum),
            successes: AtomicUsize::new(0),
            push_backs: AtomicUsize::new(0),
        }
    }

    /// What may be under way now.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// How often the system has pushed back.
    #[must_use]
    pub fn push_backs(&self) -> usize {
        self.push_backs.load(Relaxed)
    }

    /// The system refused: half as much from now on. Refusals that belong to one and the same
    /// shortage cut once: another cut needs successes in between, or a lower limit would be reached by
    /// the echo alone.
    pub fn push_back(&self) {
        self.push_backs.fetch_add(1, Relaxed);
        let limit = self.limit();
        if limit < self.maximum && self.successes.load(Relaxed) == 0 {
            return;
        }
        self.successes.store(0, Relaxed);
        let halved = (limit / 2).max(LIMIT_MIN.min(self.maximum));
        // Another cut may have won; then that one counts.
        let _ = self.limit.compare_exchange(limit, halved, Relaxed, Relaxed);
    }

    /// Something ended without the system's refusal.
    pub fn went_well(&self) {
        let limit = self.limit();
        if limit >= self.maximum {
            return;
        }
        if self.successes.fetch_add(1, Relaxed) + 1 >= SUCCESSES_PER_PLACE {
            self.successes.store(0, Relaxed);
            let _ = self.limit.compare_exchange(limit, limit + 1, Relaxed, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_shortage_halves_once_and_successes_win_it_back() {
        let budget = Adaptive::new(100);
        budget.push_back();
        budget.push_back();
        assert_eq!(budget.limit(), 50);
        assert_eq!(budget.push_backs(), 2);
        for _ in 0..SUCCESSES_PER_PLACE * 50 {
            budget.went_well();
        }
        assert_eq!(budget.limit(), 100);
        budget.went_well();
        assert_eq!(budget.limit(), 100, "never above its maximum");
    }

    #[test]
    fn it_never_falls_to_nothing() {
        let budget = Adaptive::new(100);
        for _ in 0..20 {
            budget.push_back();
            budget.went_well();
        }
        assert_eq!(budget.limit(), LIMIT_MIN);
        let tiny = Adaptive::new(2);
        tiny.push_back();
        assert_eq!(tiny.limit(), 2, "a bound below the minimum stays as given");
    }
}
