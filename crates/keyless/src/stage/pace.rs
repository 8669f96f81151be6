//! Recent wall-clock time per signature, which exceeds the processor time on an overloaded machine.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Smoothing: a new value has a weight of one eighth.
const SMOOTH: u64 = 8;

/// Smoothed time of one signature by one worker, in nanoseconds; 0: not known yet.
#[derive(Debug, Default)]
pub(super) struct Pace(AtomicU64);

impl Pace {
    /// Records that `count` signatures took the time `took` in total.
    pub(super) fn observe(&self, took: Duration, count: usize) {
        if count == 0 {
            return;
        }
        let each = u64::try_from(took.as_nanos() / count as u128).unwrap_or(u64::MAX / SMOOTH);
        let before = self.0.load(Relaxed);
        // If two workers update concurrently, one update is lost; this is only an estimate.
        let smooth = if before == 0 { each } else { before - before / SMOOTH + each / SMOOTH };
        self.0.store(smooth.max(1), Relaxed);
    }

    /// Returns the estimated wait behind `ahead` jobs with `workers` workers. Zero if unknown.
    pub(super) fn wait(&self, ahead: usize, workers: usize) -> Duration {
        let all = self.0.load(Relaxed).saturating_mul(ahead as u64);
        Duration::from_nanos(all / workers.max(1) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn estimated_wait_is_queued_work_divided_by_workers() {
        let pace = Pace::default();
        assert_eq!(pace.wait(1_000, 1), Duration::ZERO);
        pace.observe(8 * MS, 8);
        assert_eq!((pace.wait(0, 2), pace.wait(100, 2)), (Duration::ZERO, 50 * MS));
        pace.observe(9 * MS, 1);
        assert_eq!(pace.wait(1, 1), 2 * MS, "an eighth of the difference");
        pace.observe(Duration::MAX, 1);
        pace.observe(MS, 0);
        assert!(pace.wait(usize::MAX, 1) > Duration::ZERO);
    }
}
