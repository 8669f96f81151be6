//! Time limits of the scans in tests.

use std::time::Duration;

use outbound::resolve::Families;
use scan::{Limits, ScanOptions};

/// Limits that a busy machine keeps for anyone who answers, and that keep the test short for those who do
/// not.
pub(crate) fn options() -> ScanOptions {
    ScanOptions {
        families: Families::V4,
        first: Limits::each(Duration::from_millis(1_500)),
        second: Limits::each(Duration::from_secs(5)),
        ..ScanOptions::default()
    }
}

/// Limits for where everybody answers: however busy the machine, nobody is given up.
pub(crate) fn patient() -> ScanOptions {
    let limits = Limits::each(Duration::from_secs(60));
    ScanOptions { first: limits, second: limits, ..options() }
}
