//! Settings of the audit log.

use std::time::Duration;

use audit_proof::segment::Reads;

use crate::witness::WitnessOptions;

/// Settings for signing and retention of the audit log.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// Interval between two signed heads. No head is signed while the log does not grow.
    pub head_every: Duration,
    /// Witnesses to which signed heads are sent.
    pub witness: WitnessOptions,
    /// Retention policy for old events.
    pub retention: Retention,
}

/// Retention policy for old events.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Days after which events are sealed into segments; `None`: never.
    pub seal_after_days: Option<u32>,
    /// Days after which the lines of segments are deleted, counted from their last event; `None`: never. Their heads stay.
    pub prune_after_days: Option<u32>,
    /// Whether reads of credentials are aggregated in segments.
    pub reads: Reads,
    /// Maximum number of events in a segment.
    pub records_max: usize,
}

impl Default for Retention {
    /// Returns the default: no event is sealed.
    fn default() -> Self {
        Self { seal_after_days: None, prune_after_days: None, reads: Reads::ByMinute, records_max: 100_000 }
    }
}

impl Default for AuditOptions {
    /// Returns the default: a signed head every ten minutes, no witness, no sealing.
    fn default() -> Self {
        Self {
            head_every: Duration::from_secs(600),
            witness: WitnessOptions::default(),
            retention: Retention::default(),
        }
    }
}
