//! Reads the system clock.

use std::time::{SystemTime, UNIX_EPOCH};

use x509::UnixTime;

pub(crate) fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
