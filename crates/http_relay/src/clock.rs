//! The present time, for certificates and responses.

use std::time::{SystemTime, UNIX_EPOCH};

use x509::UnixTime;

/// By this machine's clock, which may be set.
pub fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixTime(since.as_secs() as i64)
}
