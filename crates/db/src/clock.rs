//! Source of the current time: the system's clock, or a manual clock for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time, µs since 1970-01-01 UTC: the system's clock, or a manual one for tests. Cheap to clone. Clones of a manual clock share
/// its time.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicI64>>);

impl Clock {
    /// Returns the system's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(None)
    }

    /// Returns a manual clock set to `now_us`.
    #[must_use]
    pub fn manual(now_us: i64) -> Self {
        Self(Some(Arc::new(AtomicI64::new(now_us))))
    }

    /// Returns the current time in µs since 1970-01-01 UTC.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        match &self.0 {
            Some(manual) => manual.load(Ordering::SeqCst),
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |age| i64::try_from(age.as_micros()).unwrap_or(i64::MAX)),
        }
    }

    /// Returns the current time in whole seconds since 1970-01-01 UTC.
    #[must_use]
    pub fn now_seconds(&self) -> i64 {
        self.now_us().div_euclid(1_000_000)
    }

    /// Sets a manual clock to `now_us`. Does nothing to the system's clock.
    pub fn set(&self, now_us: i64) {
        if let Some(manual) = &self.0 {
            manual.store(now_us, Ordering::SeqCst);
        }
    }

    /// Advances a manual clock. Does nothing to the system's clock.
    pub fn advance(&self, by: Duration) {
        if let Some(manual) = &self.0 {
            manual.fetch_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX), Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_clock_advances_on_request_and_is_shared_by_clones() {
        let clock = Clock::manual(5);
        let other = clock.clone();
        clock.advance(Duration::from_secs(1));
        assert_eq!(other.now_us(), 1_000_005);
        other.set(-1);
        assert_eq!((clock.now_us(), clock.now_seconds()), (-1, -1));
        assert!(Clock::system().now_us() > 1_700_000_000_000_000);
    }
}
