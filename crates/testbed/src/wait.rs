//! Waiting for a condition: time never decides a test, it only ends one that has failed.

use std::time::{Duration, Instant};

/// After this a condition is taken never to hold. A machine under load may take long.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until a condition holds.
///
/// # Panics
/// With `what`, when it does not hold within [`PATIENCE`].
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(PAUSE).await;
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
        std::thread::sleep(PAUSE);
    }
}
