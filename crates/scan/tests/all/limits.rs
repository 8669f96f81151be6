//! Time limits of the scans in tests.

use std::time::Duration;

use outbound::resolve::Families;
use scan::{Limits, ScanOptions};

/// Limits that are long enough for endpoints that answer on a busy machine, and short for those that do not.
pub(crate) fn options() -> ScanOptions {
    ScanOptions {
        families: Families::V4,
        first: Limits::each(Duration::from_millis(1_500)),
        second: Limits::each(Duration::from_secs(5)),
        ..ScanOptions::default()
    }
}

/// Limits for tests in which every endpoint answers: no endpoint is given up, however busy the machine is.
pub(crate) fn long_timeout_options() -> ScanOptions {
    let limits = Limits::each(Duration::from_secs(60));
    ScanOptions { first: limits, second: limits, ..options() }
}
