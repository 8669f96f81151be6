//! Validity of leaf certificates.

use std::time::Duration;

/// Seconds before now at which a leaf's validity begins, for clients whose clocks are slow.
pub(super) const CLOCK_SKEW_S: i64 = 3_600;

/// Maximum validity of a leaf: from 2029 on, browsers reject longer ones (CA/Browser Forum ballot SC-081).
pub const VALIDITY_MAX: Duration = Duration::from_secs(47 * 86_400);
/// Minimum remaining validity of a leaf in use. A CA that expires sooner signs no more leaves.
pub(crate) const VALIDITY_MIN: Duration = Duration::from_secs(60);
