//! Waiting for a condition in tests. Timeouts only end tests that have failed.

use std::time::{Duration, Instant};

/// Timeout after which a condition counts as failed. A machine under load may be slow.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// Shortest pause between two checks of a condition.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Longest pause between two checks of a condition.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Returns the pause before the next check of a condition since `began`: a tenth of the time waited so far. Many checks start a program,
/// and frequent checks would slow down the tested code.
#[must_use]
pub fn pause(began: Instant) -> Duration {
    (began.elapsed() / 10).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// Waits until a condition holds.
///
/// # Panics
/// The condition does not hold within [`TIMEOUT`]. The message contains `what`.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        tokio::time::sleep(pause(began)).await;
    }
}

/// Like [`until`], outside a runtime.
///
/// # Panics
/// As for [`until`].
pub fn until_blocking(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        std::thread::sleep(pause(began));
    }
}

/// Like [`until`], for an async condition.
///
/// # Panics
/// As for [`until`].
pub async fn until_async(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    until_some(what, async || holds().await.then_some(())).await;
}

/// Waits until `find` returns a value, and returns it.
///
/// # Panics
/// As for [`until`].
pub async fn until_some<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = find().await {
            return found;
        }
        assert!(began.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        tokio::time::sleep(pause(began)).await;
    }
}
