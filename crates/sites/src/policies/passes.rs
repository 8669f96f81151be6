//! State that is carried between reconciliation passes.

use std::time::Instant;

/// State of the last reconciliation pass of this process.
#[derive(Debug, Default)]
pub(super) struct PassState {
    /// Number of the last change before the pass.
    pub(super) change: i64,
    /// Fingerprint of the policies, generations and nodes in the pass. `None` when the pass was incomplete.
    pub(super) seen: Option<u64>,
    pub(super) walked: Option<Instant>,
}
