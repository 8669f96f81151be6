//! Random pauses before reconnects.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Returns a random pause between half of `pause` and the whole. Clients that lost the same server thus do not reconnect
/// simultaneously.
pub(crate) fn spread(pause: Duration) -> Duration {
    let chance = RandomState::new().build_hasher().finish() % 1_000;
    pause / 2 + pause / 2 * chance as u32 / 1_000
}
