//! Results of a run, or of a part of a run.

use std::collections::BTreeMap;

use store::StoreError;
use telemetry::chain;

/// Number of endpoints by the severity of their worst finding.
pub(super) type Findings = BTreeMap<String, u64>;

/// Reason why a run of a watch, or a part of the run, has no results.
pub(super) enum RunInterruption {
    /// The run was cancelled, because another node has claimed it or will claim it.
    Cancelled,
    Failed(String),
}

impl From<StoreError> for RunInterruption {
    fn from(error: StoreError) -> Self {
        Self::Failed(chain(&error))
    }
}
