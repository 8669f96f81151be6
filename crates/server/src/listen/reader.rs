//! Timeouts for clients that read their responses slowly.

use std::time::Duration;

use tokio::time::Instant;

/// Minimum bytes per second that a client must read while the server waits for it: below the rate of the slowest mobile networks.
const READ_RATE_MIN: u32 = 1 << 10;

/// Timeout of a slow reader. Waiting for the client uses up the timeout, and bytes that the client reads restore it, up to its
/// limit. A client that reads nothing is disconnected after the limit. A client that occasionally reads a single byte is
/// disconnected only slightly later.
#[derive(Debug)]
pub(super) struct ReaderTimeout {
    limit: Duration,
    left: Duration,
    /// Start of the current wait for the client.
    waiting: Option<Instant>,
}

impl ReaderTimeout {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, left: limit, waiting: None }
    }

    /// Starts a wait for the client at `now`, unless one is running. Returns the time at which the timeout ends.
    pub(super) fn wait(&mut self, now: Instant) -> Instant {
        *self.waiting.get_or_insert(now) + self.left
    }

    /// Records that the client read `bytes`, which ends the wait.
    pub(super) fn read(&mut self, now: Instant, bytes: usize) {
        if let Some(since) = self.waiting.take() {
            self.left = self.left.saturating_sub(now.duration_since(since));
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.left = (self.left + Duration::from_secs(1) * bytes / READ_RATE_MIN).min(self.limit);
    }

    /// Returns whether the timeout has passed.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.waiting.is_some_and(|since| now >= since + self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// Simulates a client that reads `bytes` every `pause` seconds. Returns the seconds until the server disconnects it, at most 3,600.
    fn served(bytes: usize, pause: u64) -> u64 {
        let (begin, mut timeout) = (Instant::now(), ReaderTimeout::new(LIMIT));
        for second in 0..3_600 {
            let now = begin + Duration::from_secs(second);
            if timeout.is_over(now) {
                return second;
            }
            if second > 0 && second % pause == 0 {
                timeout.read(now, bytes);
            }
            timeout.wait(now);
        }
        3_600
    }

    #[test]
    fn slow_readers_are_served_and_stalled_readers_time_out() {
        for (bytes, pause, wanted) in [
            (0, 4_000, 30..=30),
            // A byte every 29 s does not count as progress.
            (1, 29, 30..=31),
            (512, 1, 58..=62),
            (1_024, 1, 3_600..=3_600),
            (25 << 10, 25, 3_600..=3_600),
        ] {
            let seconds = served(bytes, pause);
            assert!(wanted.contains(&seconds), "{bytes} bytes every {pause} s: {seconds} s");
        }
    }

    #[test]
    fn idle_time_without_pending_data_does_not_count_as_stalled() {
        let (begin, mut timeout) = (Instant::now(), ReaderTimeout::new(LIMIT));
        timeout.read(begin + 20 * LIMIT, 0);
        assert!(!timeout.is_over(begin + 40 * LIMIT));
        assert_eq!(timeout.wait(begin + 40 * LIMIT), begin + 41 * LIMIT);
    }
}
