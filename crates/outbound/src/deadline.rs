//! The time a request has left, carried along with it.

use std::time::Duration;

use tokio::time::Instant;

/// A moment by which an answer is of use. Copied freely; it only ever comes closer.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Deadline(Instant);

/// Stands for "no limit" where a duration is past what the clock can hold: a year.
const FAR: Duration = Duration::from_secs(365 * 86_400);

/// The time was up.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the deadline has passed; allow more time or ask for less")]
pub struct Passed;

impl Deadline {
    /// `limit` from now.
    #[must_use]
    pub fn within(limit: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(limit).unwrap_or_else(|| now + FAR))
    }

    /// At this moment.
    #[must_use]
    pub fn at(moment: Instant) -> Self {
        Self(moment)
    }

    /// The moment itself.
    #[must_use]
    pub fn instant(self) -> Instant {
        self.0
    }

    /// Time left; zero when none is.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether no time is left.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }

    /// For a part of the work: `cap` from now, and never later than the whole.
    #[must_use]
    pub fn child(self, cap: Duration) -> Self {
        self.min(Self::within(cap))
    }

    /// For the next hop: earlier by the `margin` this hop needs to pass the answer on.
    #[must_use]
    pub fn less(self, margin: Duration) -> Self {
        Self(self.0.checked_sub(margin).unwrap_or_else(Instant::now))
    }

    /// Waits for `work` until the deadline. Work that is ready is taken even when time is up.
    ///
    /// # Errors
    /// [`Passed`] at the deadline; the work is dropped.
    pub async fn bound<T>(self, work: impl Future<Output = T>) -> Result<T, Passed> {
        tokio::time::timeout_at(self.0, work).await.map_err(|_| Passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_child_never_outlives_its_parent() {
        let parent = Deadline::within(Duration::from_secs(3));
        assert_eq!(parent.child(Duration::from_secs(1)).remaining(), Duration::from_secs(1));
        assert_eq!(parent.child(Duration::from_secs(9)), parent);
        assert_eq!(parent.less(Duration::from_secs(1)).remaining(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_dropped_at_the_deadline() {
        let deadline = Deadline::within(Duration::from_secs(3));
        assert_eq!(deadline.bound(std::future::pending::<()>()).await, Err(Passed));
        assert!(deadline.has_passed());
        assert_eq!(deadline.bound(async { 7 }).await, Ok(7), "ready work is taken");
    }

    #[tokio::test(start_paused = true)]
    async fn no_limit_is_a_limit_too() {
        assert!(Deadline::within(Duration::MAX).remaining() >= FAR);
    }
}
