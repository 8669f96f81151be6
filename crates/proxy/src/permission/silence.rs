//! Circuit breaker: an unavailable service gets few requests, so that handshakes do not wait for it.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Number of failed requests in a row after which the service counts as unavailable.
pub(super) const AWAY_AFTER: u32 = 8;
/// Interval of requests while the service is unavailable.
const PROBE_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct CircuitBreaker(Mutex<State>);

#[derive(Default)]
struct State {
    failure_count: u32,
    probed: Option<Instant>,
}

impl CircuitBreaker {
    /// Returns whether a request may be sent. While the service is unavailable, permits one request in each interval.
    pub(super) fn allows_request(&self) -> bool {
        let mut state = self.0.lock();
        if state.failure_count < AWAY_AFTER {
            return true;
        }
        let now = Instant::now();
        let is_time = state.probed.is_none_or(|probed| now.duration_since(probed) >= PROBE_EVERY);
        if is_time {
            state.probed = Some(now);
        }
        is_time
    }

    /// Records that a request got no response.
    pub(super) fn record_failure(&self) {
        let mut state = self.0.lock();
        state.failure_count = state.failure_count.saturating_add(1);
        if state.failure_count == AWAY_AFTER {
            state.probed = Some(Instant::now());
        }
    }

    /// Records a response, which may be a denial.
    pub(super) fn record_success(&self) {
        *self.0.lock() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unavailable_service_is_probed_once_per_interval() {
        let silence = CircuitBreaker::default();
        for _ in 0..AWAY_AFTER {
            assert!(silence.allows_request());
            silence.record_failure();
        }
        for _ in 0..3 {
            assert!(!silence.allows_request());
            tokio::time::advance(PROBE_EVERY).await;
            assert!(silence.allows_request(), "one in a time");
            assert!(!silence.allows_request());
            silence.record_failure();
        }
        silence.record_success();
        assert!((0..3).all(|_| silence.allows_request()));
    }
}
