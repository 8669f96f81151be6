//! When to try again: exponential backoff with full jitter, as a pure sequence.
//!
//! Only for what can heal. A refusal, a bad name or a rejected certificate is an answer.

use std::time::Duration;

/// How often and how far apart to try.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Policy {
    /// Bound of the first wait.
    pub base: Duration,
    /// Bound of every wait.
    pub cap: Duration,
    /// Tries after the first one.
    pub retries: u32,
}

impl Policy {
    /// The waits before each retry: drawn evenly from zero to `min(cap, base · 2ⁿ)`, so that callers
    /// who failed together do not return together. `random` is a fraction from 0 up to 1, from
    /// outside so that tests own it.
    pub fn waits(self, mut random: impl FnMut() -> f64) -> impl Iterator<Item = Duration> {
        (0..self.retries).map(move |n| {
            let bound = self.base.saturating_mul(1_u32.checked_shl(n).unwrap_or(u32::MAX));
            let fraction = random();
            let fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 1.0 };
            bound.min(self.cap).mul_f64(fraction)
        })
    }
}

/// A fraction for [`Policy::waits`], from 0 up to 1; 1 without randomness: the longest wait is the safe one.
#[must_use]
pub fn random() -> f64 {
    let mut octets = [0; 4];
    aws_lc_rs::rand::fill(&mut octets)
        .map_or(1.0, |()| f64::from(u32::from_be_bytes(octets)) / 4_294_967_296.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POLICY: Policy =
        Policy { base: Duration::from_millis(100), cap: Duration::from_secs(1), retries: 6 };

    #[test]
    fn bounds_double_up_to_the_cap() {
        let waits: Vec<_> = POLICY.waits(|| 1.0).map(|wait| wait.as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_000, 1_000]);
    }

    proptest! {
        #[test]
        fn no_wait_is_past_the_cap(
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
