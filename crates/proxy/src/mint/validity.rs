//! How long leaf certificates are valid.

use std::time::Duration;

/// How far the past a leaf begins, for clients whose clocks are behind.
pub(super) const CLOCK_SKEW_S: i64 = 3_600;

/// The most a leaf may hold: browsers refuse longer from 2029 on (CA/Browser Forum ballot SC-081).
pub const VALIDITY_MAX: Duration = Duration::from_secs(47 * 86_400);
/// What a leaf still holds at least when it is handed out; an authority that ends sooner signs no more.
pub(crate) const VALIDITY_MIN: Duration = Duration::from_secs(60);
