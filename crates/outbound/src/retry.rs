//! Retry delays: exponential backoff with full jitter, as a pure sequence.
//!
//! For temporary failures only. A refused connection, an invalid name or a rejected certificate is final.

use std::time::Duration;

/// Number and delays of retries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Policy {
    /// Maximum of the first delay.
    pub base: Duration,
    /// Maximum of each delay.
    pub cap: Duration,
    /// Number of retries after the first attempt.
    pub retries: u32,
}

impl Policy {
    /// Returns the delay before each retry: uniformly distributed from zero to `min(cap, base · 2ⁿ)`, so that callers that failed
    /// together do not retry together. `random` returns a fraction from 0 to 1 (exclusive); it is an argument so that tests control
    /// it.
    pub fn waits(self, mut random: impl FnMut() -> f64) -> impl Iterator<Item = Duration> {
        (0..self.retries).map(move |n| {
            let bound = self.base.saturating_mul(1_u32.checked_shl(n).unwrap_or(u32::MAX));
            let fraction = random();
            let fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 1.0 };
            bound.min(self.cap).mul_f64(fraction)
        })
    }
}

/// Returns a random fraction from 0 to 1 (exclusive) for [`Policy::waits`]. Without a randomness source returns 1, the longest and
/// thus safest delay.
#[must_use]
pub fn random() -> f64 {
    let mut bytes = [0; 4];
    aws_lc_rs::rand::fill(&mut bytes).map_or(1.0, |()| f64::from(u32::from_be_bytes(bytes)) / 4_294_967_296.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLICY: Policy =
        Policy { base: Duration::from_millis(100), cap: Duration::from_secs(1), retries: 6 };

    #[test]
    fn backoff_doubles_up_to_the_cap() {
        let waits: Vec<_> = POLICY.waits(|| 1.0).map(|wait| wait.as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_000, 1_000]);
    }

    proptest! {
        #[test]
        fn backoff_never_exceeds_the_cap(
            base_ms: u64, cap_ms in 0_u64..100_000, retries in 0_u32..80, fraction: f64,
        ) {
            let cap = Duration::from_millis(cap_ms);
            let policy = Policy { base: Duration::from_millis(base_ms), cap, retries };
            let waits: Vec<_> = policy.waits(|| fraction).collect();
            prop_assert_eq!(waits.len(), retries as usize);
            prop_assert!(waits.iter().all(|&wait| wait <= cap));
        }
    }
}
