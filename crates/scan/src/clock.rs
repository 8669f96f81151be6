//! Clock readings for observations: durations of phases, and the wall clock time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Returns the microseconds since `began`, saturating at 71 minutes.
pub(crate) fn micros(began: Instant) -> u32 {
    u32::try_from(began.elapsed().as_micros()).unwrap_or(u32::MAX)
}

/// Returns the wall clock time in microseconds since 1970-01-01 UTC.
pub(crate) fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
