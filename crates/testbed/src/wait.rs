//! Waiting for a condition: time never decides a test, it only ends one that has failed.

use std::time::{Duration, Instant};

/// After this a condition is taken never to hold. A machine under load may take long.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Shortest and longest pause between two checks of a condition.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The pause before the next check of a condition that is waited for since `began`: a tenth of the time waited so far. Many checks
/// start a program, and would take the processor from what they wait for.
#[must_use]
pub fn pause(began: Instant) -> Duration {
    (began.elapsed() / 10).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// Waits until a condition holds.
///
/// # Panics
/// With `what`, when it does not hold within [`PATIENCE`].
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(pause(began)).await;
    }
}

/// As [`until`], outside a runtime.
///
/// # Panics
/// As [`until`].
pub fn until_blocking(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(pause(began));
    }
}

/// As [`until`], where the condition itself has to be awaited.
///
/// # Panics
/// As [`until`].
pub async fn until_async(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    until_some(what, async || holds().await.then_some(())).await;
}

/// Waits until there is a value, and returns it.
///
/// # Panics
/// As [`until`].
pub async fn until_some<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = find().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(pause(began)).await;
    }
}
