//! Results of a run or of a part of one.

use std::collections::BTreeMap;

use store::StoreError;
use telemetry::chain;

/// Number of endpoints by the severity of their worst finding.
pub(super) type Findings = BTreeMap<String, u64>;

/// Why a run, or a part of one, has no results.
pub(super) enum RunInterruption {
    /// The run was cancelled: another node has it, or will claim it.
    Cancelled,
    Failed(String),
}

impl From<StoreError> for RunInterruption {
    fn from(error: StoreError) -> Self {
        Self::Failed(chain(&error))
    }
}
