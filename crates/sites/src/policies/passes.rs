//! The state between passes that reconcile wraps.

use std::time::Instant;

/// What the last pass of this process saw.
#[derive(Debug, Default)]
pub(super) struct Passes {
    /// The number of the last change, before it looked.
    pub(super) change: i64,
    /// Of the policies, generations and nodes that it saw; `None` when it did not come to its end.
    pub(super) seen: Option<u64>,
    pub(super) walked: Option<Instant>,
}
