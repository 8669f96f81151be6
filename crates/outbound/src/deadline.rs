//! The deadline of a request, which is passed to each part of the work.

use std::time::Duration;

use tokio::time::Instant;

/// The latest time at which a response is useful. Cheap to copy; derived deadlines are never later.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Deadline(Instant);

/// Maximum duration: a year. Longer durations are shortened to a year, because they may exceed the range of the clock.
const DURATION_MAX: Duration = Duration::from_secs(365 * 86_400);

/// The deadline has passed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the deadline has passed; allow more time or request less")]
pub struct DeadlinePassed;

impl Deadline {
    /// Returns the deadline `limit` from now.
    #[must_use]
    pub fn within(limit: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(limit).unwrap_or_else(|| now + DURATION_MAX))
    }

    /// Returns the deadline at `moment`.
    #[must_use]
    pub fn at(moment: Instant) -> Self {
        Self(moment)
    }

    /// Returns the deadline as an instant.
    #[must_use]
    pub fn instant(self) -> Instant {
        self.0
    }

    /// Returns the remaining time; zero after the deadline.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Returns whether the deadline has passed.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }

    /// Returns the deadline of a part of the work: `cap` from now, but never later than this deadline.
    #[must_use]
    pub fn child(self, cap: Duration) -> Self {
        self.min(Self::within(cap))
    }

    /// Returns the deadline for the next hop: earlier by the `margin` that this hop needs to forward the response.
    #[must_use]
    pub fn less(self, margin: Duration) -> Self {
        Self(self.0.checked_sub(margin).unwrap_or_else(Instant::now))
    }

    /// Waits for `work` until the deadline. Completed work is returned even after the deadline.
    ///
    /// # Errors
    /// [`DeadlinePassed`] at the deadline; the work is dropped.
    pub async fn bound<T>(self, work: impl Future<Output = T>) -> Result<T, DeadlinePassed> {
        tokio::time::timeout_at(self.0, work).await.map_err(|_| DeadlinePassed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn child_deadline_never_exceeds_its_parent() {
        let parent = Deadline::within(Duration::from_secs(3));
        assert_eq!(parent.child(Duration::from_secs(1)).remaining(), Duration::from_secs(1));
        assert_eq!(parent.child(Duration::from_secs(9)), parent);
        assert_eq!(parent.less(Duration::from_secs(1)).remaining(), Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_dropped_at_the_deadline() {
        let deadline = Deadline::within(Duration::from_secs(3));
        assert_eq!(deadline.bound(std::future::pending::<()>()).await, Err(DeadlinePassed));
        assert!(deadline.has_passed());
        assert_eq!(deadline.bound(async { 7 }).await, Ok(7), "ready work is taken");
    }

    #[tokio::test(start_paused = true)]
    async fn maximum_duration_yields_a_valid_deadline() {
        assert!(Deadline::within(Duration::MAX).remaining() >= DURATION_MAX);
    }
}
