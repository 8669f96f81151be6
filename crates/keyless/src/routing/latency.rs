//! Latency of a node: quantiles of recent replies, and the round-trip time.

use std::time::Duration;

/// Number of histogram buckets, four for each doubling from [`LEAST`] on: 64 µs to a minute.
const BUCKETS: usize = 80;
/// Upper bound of the first bucket, in microseconds.
const LEAST: f64 = 64.0;
/// Minimum replies for a quantile.
const SAMPLES_MIN: u32 = 20;
/// Number of replies after which all counts are halved, so that recent replies dominate. At 1,000 replies per second, the counts
/// cover the last few seconds.
const SAMPLES_MAX: u32 = 2_048;

/// Distribution of recent reply times.
#[derive(Clone, Debug)]
pub(super) struct Latency {
    counts: [u32; BUCKETS],
    samples: u32,
}

impl Default for Latency {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], samples: 0 }
    }
}

impl Latency {
    pub(super) fn observe(&mut self, took: Duration) {
        let octaves = (took.as_micros() as f64 / LEAST).max(1.0).log2();
        let bucket = ((octaves * 4.0) as usize).min(BUCKETS - 1);
        self.counts[bucket] += 1;
        self.samples += 1;
        if self.samples >= SAMPLES_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.samples = self.counts.iter().sum();
        }
    }

    /// Returns the percentile of reply times, accurate to about a fifth; `None` while there are too few replies.
    pub(super) fn quantile(&self, percent: u32) -> Option<Duration> {
        if self.samples < SAMPLES_MIN {
            return None;
        }
        let wanted = (self.samples * percent).div_ceil(100);
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Duration::from_micros((LEAST * 2f64.powf((bucket + 1) as f64 / 4.0)) as u64))
    }
}

/// Smooths round-trip times: a new value has a weight of one eighth, like in TCP (RFC 6298).
pub(super) fn smoothed(before: Option<Duration>, measured: Duration) -> Duration {
    before.map_or(measured, |before| (before * 7 + measured) / 8)
}
/// Value in microseconds that means "no path".
pub(super) const NO_PATH: u64 = u64::MAX;

/// Returns a round-trip time in microseconds.
pub(super) fn us(round_trip: Duration) -> u64 {
    u64::try_from(round_trip.as_micros()).unwrap_or(NO_PATH).min(NO_PATH - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn latency_quantile_is_accurate_to_one_fifth() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile(95), None);
        (1..=1_000).for_each(|ms| latency.observe(MS * ms));
        for (percent, ms) in [(50, 500), (95, 950), (99, 990)] {
            let found = latency.quantile(percent).unwrap();
            assert!((MS * ms..MS * ms * 6 / 5).contains(&found), "{percent} %: {found:?}");
        }
    }

    #[test]
    fn latency_quantile_forgets_old_samples() {
        let mut latency = Latency::default();
        (0..10_000).for_each(|_| latency.observe(MS));
        (0..20_000).for_each(|_| latency.observe(100 * MS));
        assert!(latency.quantile(5).unwrap() > 90 * MS);
        (0..20_000).for_each(|_| latency.observe(Duration::ZERO));
        assert!(latency.quantile(95).unwrap() < MS);
        latency.observe(Duration::MAX);
    }

    #[test]
    fn round_trip_time_is_smoothed() {
        assert_eq!(smoothed(None, 8 * MS), 8 * MS);
        assert_eq!(smoothed(Some(8 * MS), 16 * MS), 9 * MS);
    }
}
