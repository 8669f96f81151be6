//! Circuit breaker: an unavailable service gets few requests, so that handshakes do not wait for it.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Number of failed requests in a row after which the service counts as unavailable.
pub(super) const AWAY_AFTER: u32 = 8;
/// Interval of requests while the service is unavailable.
const PROBE_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Silence(Mutex<State>);

#[derive(Default)]
struct State {
    in_a_row: u32,
    probed: Option<Instant>,
}

impl Silence {
    /// Returns whether a request may be sent. While the service is unavailable, permits one request in each interval.
    pub(super) fn allows_request(&self) -> bool {
        let mut state = self.0.lock();
        if state.in_a_row < AWAY_AFTER {
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
    pub(super) fn goes_on(&self) {
        let mut state = self.0.lock();
        state.in_a_row = state.in_a_row.saturating_add(1);
        if state.in_a_row == AWAY_AFTER {
            state.probed = Some(Instant::now());
        }
    }

    /// Records a response, which may be a denial.
    pub(super) fn over(&self) {
        *self.0.lock() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unavailable_service_is_probed_once_per_interval() {
        let silence = Silence::default();
        for _ in 0..AWAY_AFTER {
            assert!(silence.allows_request());
            silence.goes_on();
        }
        for _ in 0..3 {
            assert!(!silence.allows_request());
            tokio::time::advance(PROBE_EVERY).await;
            assert!(silence.allows_request(), "one in a time");
            assert!(!silence.allows_request());
            silence.goes_on();
        }
        silence.over();
        assert!((0..3).all(|_| silence.allows_request()));
    }
}
