//! Pauses between tries.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Half of it to all of it, at random: those who lost a server together do not come back together.
pub(crate) fn spread(pause: Duration) -> Duration {
    let chance = RandomState::new().build_hasher().finish() % 1_000;
    pause / 2 + pause / 2 * chance as u32 / 1_000
}
