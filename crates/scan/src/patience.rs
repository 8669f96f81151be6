//! How long to wait for an endpoint: limits that know how slow the others are, and how busy this machine is.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often the starvation of this process is measured.
const BEAT: Duration = Duration::from_millis(25);
/// A beat that is late by less was late by the timer's own resolution.
const LATENESS_MIN: Duration = Duration::from_millis(5);
/// Answers before limits are learned from them.
const SAMPLES_MIN: u64 = 50;
/// A limit is so many times what 95 % of the answers take.
const MARGIN: u32 = 4;
/// Classes of durations, each twice as long as the one before: 1 ms to 9 hours.
const CLASSES: usize = 25;

/// A limit passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Elapsed;

/// Measured response times, from which timeouts follow.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// Microseconds for which this process was ready to run and did not.
    starved_us: AtomicU64,
    answers: Mutex<Latencies>,
}

impl Patience {
    /// Measures until `stop` how long this process is kept waiting for a processor, by other processes, by a quota or by its own
    /// work.
    pub(crate) fn measure(self: &Arc<Self>, stop: CancellationToken) {
        let patience = self.clone();
        let guard = telemetry::tasks::guard("scan-patience");
        tokio::spawn(async move {
            let _guard = guard;
            loop {
                let due = Instant::now() + BEAT;
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep_until(due) => patience.late(due.elapsed()),
                }
            }
        });
    }

    fn late(&self, by: Duration) {
        if by >= LATENESS_MIN {
            self.starved_us.fetch_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    fn starved(&self) -> Duration {
        Duration::from_micros(self.starved_us.load(Ordering::Relaxed))
    }

    /// Takes note of a phase that ended with an answer.
    pub(crate) fn answered(&self, took: Duration) {
        self.answers.lock().add(took);
    }

    /// The limit of a first try: `usual` until the answers of others show how long they take; then four times what 95 % of them
    /// take, from half of `usual` up to `most`.
    pub(crate) fn first_limit(&self, usual: Duration, most: Duration) -> Duration {
        let learned = self.answers.lock().nearly_all();
        learned.map_or(usual, |took| (took * MARGIN).clamp(usual / 2, most.max(usual)))
    }

    /// The limit of the last try: `generous`, and more where the answers of others take nearly as long.
    pub(crate) fn last_limit(&self, generous: Duration) -> Duration {
        let learned = self.answers.lock().nearly_all();
        learned.map_or(generous, |took| (took * MARGIN).clamp(generous, generous * 3))
    }

    /// Waits for `future` up to `limit`, which is read again whenever it passes. The time for which this process could not run does
    /// not count: an answer that lies in the socket is read, however late.
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
            // The beat may be as late as this timer, and what has arrived has not been looked at since.
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

/// Durations in classes, the newest counting most.
#[derive(Debug, Default)]
struct Latencies {
    classes: [u64; CLASSES],
    count: u64,
}

impl Latencies {
    /// Past so many all counts are halved, so that a network that becomes slow is noticed.
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

    /// What 95 % take at most; `None` before enough is known.
    fn nearly_all(&self) -> Option<Duration> {
        if self.count < SAMPLES_MIN {
            return None;
        }
        let wanted = self.count - self.count / 20;
        let mut seen = 0;
        let class = self.classes.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Duration::from_millis(2 << class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn limits_follow_the_answers_of_others() {
        let patience = Patience::default();
        let first = || patience.first_limit(2 * SECOND, 10 * SECOND);
        assert_eq!(first(), 2 * SECOND);
        (0..SAMPLES_MIN).for_each(|_| patience.answered(SECOND / 20));
        assert_eq!(first(), SECOND, "half of the usual limit on a fast network");
        assert_eq!(patience.last_limit(10 * SECOND), 10 * SECOND);
        (0..SAMPLES_MIN).for_each(|_| patience.answered(SECOND));
        assert!(first() > 3 * SECOND, "{:?}", first());
        (0..SAMPLES_MIN).for_each(|_| patience.answered(6 * SECOND));
        assert_eq!(first(), 10 * SECOND, "never more than the last limit");
        assert_eq!(patience.last_limit(10 * SECOND), 30 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_a_processor_does_not_count() {
        let patience = Patience::default();
        let limit = || SECOND;
        assert_eq!(patience.wait(limit, std::future::pending::<()>()).await, Err(Elapsed));
        let slow = async {
            tokio::time::sleep(SECOND / 2).await;
            patience.late(5 * SECOND);
            tokio::time::sleep(4 * SECOND).await;
        };
        assert_eq!(patience.wait(limit, slow).await, Ok(()));
    }
}
