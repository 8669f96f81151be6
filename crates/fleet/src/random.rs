//! Deterministic random numbers from a seed. Not for secrets.

use std::ops::RangeInclusive;
use std::time::Duration;

/// SplitMix64 (Steele, Lea, Flood 2014): small, fast, and good enough for simulations.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which must not be 0; the bias of a 64-bit remainder is negligible here.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Returns a uniformly distributed duration in whole microseconds.
    pub(crate) fn duration(&mut self, range: &RangeInclusive<Duration>) -> Duration {
        let span = range.end().saturating_sub(*range.start()).as_micros() as u64;
        *range.start() + Duration::from_micros(self.below(span + 1))
    }

    /// Shuffles the items in place (Fisher–Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}
