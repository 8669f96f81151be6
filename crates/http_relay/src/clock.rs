//! Current time, for certificates and responses.

use std::time::{SystemTime, UNIX_EPOCH};

use x509::UnixTime;

/// Returns the time of this machine's clock, which may jump.
pub fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime(since.as_secs() as i64)
}
