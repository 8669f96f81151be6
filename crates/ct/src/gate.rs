//! Limits requests to a service: rate, concurrency, and pauses after failures.

use std::time::Duration;

use outbound::rate::{Pace, Pacer, PacerCounts, SendPermit};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Maximum of the first pause after a failure; it doubles with each further failure in a row.
const PAUSE_FIRST: Duration = Duration::from_secs(2);
/// Maximum pause unless the service requests a longer one. crt.sh has outages of hours; a delay of ten minutes loses nothing.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// A limit on requests to a service.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    slots: Semaphore,
    /// Maximum wait for the rate limit, counted after a slot is free. A request that would wait longer is rejected.
    wait_max: Duration,
    started: Instant,
}

#[derive(Debug)]
struct State {
    pacer: Pacer,
    /// Time before which no request is sent. Needed because a service may request a longer pause than the rate limiter supports,
    /// such as an hour.
    closed_until_us: i64,
    failures: u32,
    /// Time of the last counted failure. Failures of requests that were sent before this time count as the same failure, because
    /// requests run concurrently.
    failed_at_us: i64,
}

/// Permit for one request. The holder reports the result; a permit that is dropped without a result changes nothing.
#[derive(Debug)]
pub(super) struct RequestPermit<'g> {
    gate: &'g Gate,
    permit: SendPermit,
    sent_us: i64,
    _slot: SemaphorePermit<'g>,
}

impl Gate {
    pub(super) fn new(pace: Pace, in_flight: usize, wait_max: Duration) -> Self {
        let pacer = Pacer::new(pace);
        let state = Mutex::new(State { pacer, closed_until_us: 0, failures: 0, failed_at_us: 0 });
        Self { state, slots: Semaphore::new(in_flight.max(1)), wait_max, started: Instant::now() }
    }

    /// Waits for a slot and a token of the rate limit.
    ///
    /// # Errors
    /// The required wait, if it exceeds the maximum.
    pub(super) async fn enter(&self) -> Result<RequestPermit<'_>, Duration> {
        // The semaphore is never closed.
        let slots = self.slots.acquire().await.map_err(|_| self.wait_max)?;
        let until = Instant::now() + self.wait_max;
        loop {
            let now = self.now_us();
            let permit_or_wait = self.state.lock().try_acquire(now);
            let wait = match permit_or_wait {
                Ok(permit) => return Ok(RequestPermit { gate: self, permit, sent_us: now, _slot: slots }),
                Err(wait) if Instant::now() + wait > until => return Err(wait),
                Err(wait) => wait,
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Returns the counters of the rate limiter, and the request rate that it has learned.
    pub(super) fn pacer_counts(&self) -> PacerCounts {
        self.state.lock().pacer.pacer_counts(self.now_us())
    }

    fn now_us(&self) -> i64 {
        micros(self.started.elapsed())
    }
}

impl RequestPermit<'_> {
    /// Records that the service responded.
    pub(super) fn answered(self) {
        self.gate.state.lock().failures = 0;
    }

    /// Records that the service throttled a request; returns the pause.
    pub(super) fn throttled(self, retry_after: Option<Duration>) -> Duration {
        let now = self.gate.now_us();
        let mut state = self.gate.state.lock();
        state.pacer.throttled(now, self.permit, retry_after);
        state.close(self.sent_us, now, retry_after)
    }

    /// Records that the service failed; returns the pause.
    pub(super) fn failed(self, retry_after: Option<Duration>) -> Duration {
        let now = self.gate.now_us();
        self.gate.state.lock().close(self.sent_us, now, retry_after)
    }
}

impl State {
    fn try_acquire(&mut self, now_us: i64) -> Result<SendPermit, Duration> {
        let closed = self.closed_until_us.saturating_sub(now_us);
        let permit_or_wait = if closed > 0 {
            Err(closed.max(self.pacer.wait(now_us)))
        } else {
            self.pacer.try_acquire(now_us)
        };
        permit_or_wait.map_err(|wait| Duration::from_micros(u64::try_from(wait).unwrap_or(0)))
    }

    /// Pauses requests for the time that the service requests, or for a time that grows with consecutive failures.
    fn close(&mut self, sent_us: i64, now_us: i64, retry_after: Option<Duration>) -> Duration {
        let is_new_failure = self.failures == 0 || sent_us >= self.failed_at_us;
        let before = if is_new_failure { self.failures } else { self.failures - 1 };
        let pause = retry_after.unwrap_or_else(|| pause(before));
        if is_new_failure {
            self.failures = self.failures.saturating_add(1);
            self.failed_at_us = now_us;
        }
        self.closed_until_us = self.closed_until_us.max(now_us.saturating_add(micros(pause)));
        pause
    }
}

/// Returns a random pause between half and all of a maximum that doubles with each failure. Jitter spreads the retries of many
/// clients.
fn pause(failures: u32) -> Duration {
    let bound = PAUSE_FIRST.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(PAUSE_MAX);
    bound / 2 + (bound / 2).mul_f64(fraction())
}

/// Returns a random number; always the same if there is no randomness source.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u64::from_be_bytes(bytes)
}

/// Returns a random fraction from 0 to 1 (exclusive). Returns 1 if there is no randomness source, so that the pause is the maximum.
fn fraction() -> f64 {
    let mut bytes = [0; 4];
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        return 1.0;
    }
    f64::from(u32::from_be_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Pace = Pace { per_second: None, per_minute: None };

    #[tokio::test(start_paused = true)]
    async fn gate_waits_for_retry_after_and_fails_beyond_its_patience() {
        let gate = Gate::new(FAST, 4, Duration::from_secs(10));
        gate.enter().await.unwrap().throttled(Some(Duration::from_secs(5)));
        let before = Instant::now();
        let turn = gate.enter().await.unwrap();
        assert_eq!(before.elapsed().as_secs(), 5);
        turn.failed(Some(Duration::from_secs(60)));
        assert_eq!(gate.enter().await.unwrap_err().as_secs(), 60, "longer than the longest wait");
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_failures_count_as_one_failure() {
        let gate = Gate::new(FAST, 8, Duration::from_secs(10));
        let mut turns = Vec::new();
        for _ in 0..8 {
            turns.push(gate.enter().await.unwrap());
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        let pauses: Vec<_> = turns.into_iter().map(|turn| turn.failed(None)).collect();
        assert!(pauses.iter().all(|pause| *pause <= PAUSE_FIRST), "{pauses:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn backoff_doubles_until_a_request_succeeds() {
        let gate = Gate::new(FAST, 4, Duration::from_secs(3_600));
        let mut bound = PAUSE_FIRST;
        for _ in 0..12 {
            let pause = gate.enter().await.unwrap().failed(None);
            assert!(pause >= bound / 2 && pause <= bound, "{pause:?} of {bound:?}");
            bound = (bound * 2).min(PAUSE_MAX);
        }
        gate.enter().await.unwrap().answered();
        assert!(gate.enter().await.unwrap().failed(None) <= PAUSE_FIRST);
    }
}
