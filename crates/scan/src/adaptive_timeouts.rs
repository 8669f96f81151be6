//! Adaptive timeouts that depend on the response times of other endpoints and on the load of this machine.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval at which the scheduling delay of this process is measured.
const MEASURE_INTERVAL: Duration = Duration::from_millis(25);
/// Minimum delay that is counted. Smaller delays are within the resolution of the timer.
const LATENESS_MIN: Duration = Duration::from_millis(5);
/// Minimum number of measured response times before timeouts adapt to them.
const SAMPLES_MIN: u64 = 50;
/// Timeout as a multiple of the 95th percentile of response times.
const MARGIN: u32 = 4;
/// Buckets of the histogram of durations, each twice as wide as the previous one: 1 ms to 9 hours.
const CLASSES: usize = 25;

/// A timeout passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Elapsed;

/// Measured response times, from which timeouts are derived.
#[derive(Debug, Default)]
pub(crate) struct AdaptiveTimeouts {
    /// Total microseconds for which this process was ready to run but was not scheduled.
    starved_us: AtomicU64,
    answers: Mutex<Latencies>,
}

impl AdaptiveTimeouts {
    /// Measures until `stop` how long this process waits for a processor, because of other processes, a quota or its own work.
    pub(crate) fn measure(self: &Arc<Self>, stop: CancellationToken) {
        let adaptive_timeouts = self.clone();
        let guard = telemetry::tasks::guard("scan-adaptive-timeouts");
        tokio::spawn(async move {
            let _guard = guard;
            loop {
                let due = Instant::now() + MEASURE_INTERVAL;
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep_until(due) => adaptive_timeouts.late(due.elapsed()),
                }
            }
        });
    }

    fn late(&self, delay: Duration) {
        if delay >= LATENESS_MIN {
            self.starved_us
                .fetch_add(u64::try_from(delay.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    fn starved(&self) -> Duration {
        Duration::from_micros(self.starved_us.load(Ordering::Relaxed))
    }

    /// Records the duration of a phase that ended with a response.
    pub(crate) fn answered(&self, took: Duration) {
        self.answers.lock().add(took);
    }

    /// Returns the timeout of a first probe: `usual` until there are enough measurements; then four times their 95th percentile,
    /// from half of `usual` up to `most`.
    pub(crate) fn first_probe_timeout(&self, usual: Duration, most: Duration) -> Duration {
        let learned = self.answers.lock().percentile_95();
        learned.map_or(usual, |took| (took * MARGIN).clamp(usual / 2, most.max(usual)))
    }

    /// Returns the timeout of the last probe: `generous`, or more if other endpoints respond nearly as slowly.
    pub(crate) fn last_probe_timeout(&self, generous: Duration) -> Duration {
        let learned = self.answers.lock().percentile_95();
        learned.map_or(generous, |took| (took * MARGIN).clamp(generous, generous * 3))
    }

    /// Waits for `future` up to `limit`. Whenever the limit has passed, `limit` is evaluated again, because it may be longer by
    /// then. Time in which this process was not scheduled does not count: a response that is already in the socket is read, however
    /// late.
    pub(crate) async fn wait<F: Future>(
        &self,
        limit: impl Fn() -> Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let mut future = std::pin::pin!(future);
        let (began, starved_before) = (Instant::now(), self.starved());
        loop {
            let allowed = limit() + self.starved().saturating_sub(starved_before);
            let due = began + allowed;
            if let Ok(output) = tokio::time::timeout_at(due, future.as_mut()).await {
                return Ok(output);
            }
            // The measurement may be as late as this timer, and received data may not have been read since.
            let late = due.elapsed();
            tokio::task::yield_now().await;
            if late >= LATENESS_MIN
                && let Ok(output) = tokio::time::timeout(late, future.as_mut()).await
            {
                return Ok(output);
            }
            let starved = self.starved().saturating_sub(starved_before);
            if began.elapsed() >= limit() + starved {
                return Err(Elapsed);
            }
        }
    }
}

/// Histogram of durations that favors recent ones.
#[derive(Debug, Default)]
struct Latencies {
    classes: [u64; CLASSES],
    count: u64,
}

impl Latencies {
    /// Number of samples at which all counts are halved, so that the histogram adapts when the network becomes slow.
    const COUNT_MAX: u64 = 4_096;

    fn add(&mut self, took: Duration) {
        let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
        let class = (u64::BITS - milliseconds.leading_zeros()) as usize - 1;
        self.classes[class.min(CLASSES - 1)] += 1;
        self.count += 1;
        if self.count >= Self::COUNT_MAX {
            self.classes.iter_mut().for_each(|class| *class /= 2);
            self.count = self.classes.iter().sum();
        }
    }

    /// Returns the 95th percentile; `None` before there are enough measurements.
    fn percentile_95(&self) -> Option<Duration> {
        if self.count < SAMPLES_MIN {
            return None;
        }
        let rank = self.count - self.count / 20;
        let mut seen = 0;
        let class = self.classes.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(Duration::from_millis(2 << class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn timeouts_follow_the_measured_response_times() {
        let adaptive_timeouts = AdaptiveTimeouts::default();
        let first = || adaptive_timeouts.first_probe_timeout(2 * SECOND, 10 * SECOND);
        assert_eq!(first(), 2 * SECOND);
        (0..SAMPLES_MIN).for_each(|_| adaptive_timeouts.answered(SECOND / 20));
        assert_eq!(first(), SECOND, "half of the usual limit on a fast network");
        assert_eq!(adaptive_timeouts.last_probe_timeout(10 * SECOND), 10 * SECOND);
        (0..SAMPLES_MIN).for_each(|_| adaptive_timeouts.answered(SECOND));
        assert!(first() > 3 * SECOND, "{:?}", first());
        (0..SAMPLES_MIN).for_each(|_| adaptive_timeouts.answered(6 * SECOND));
        assert_eq!(first(), 10 * SECOND, "never more than the last limit");
        assert_eq!(adaptive_timeouts.last_probe_timeout(10 * SECOND), 30 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_cpu_does_not_count_toward_the_timeout() {
        let adaptive_timeouts = AdaptiveTimeouts::default();
        let limit = || SECOND;
        assert_eq!(adaptive_timeouts.wait(limit, std::future::pending::<()>()).await, Err(Elapsed));
        let slow = async {
            tokio::time::sleep(SECOND / 2).await;
            adaptive_timeouts.late(5 * SECOND);
            tokio::time::sleep(4 * SECOND).await;
        };
        assert_eq!(adaptive_timeouts.wait(limit, slow).await, Ok(()));
    }
}
