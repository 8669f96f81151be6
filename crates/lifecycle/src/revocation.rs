//! A revocation that this process has claimed.

use crate::tables::jobs::JobRow;

/// A revocation that this process has claimed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimedRevocation {
    /// The run.
    pub(crate) job: i64,
    /// How often it was claimed.
    pub(crate) attempts: i64,
    /// The certificate's row.
    pub(crate) certificate: i64,
}

impl ClaimedRevocation {
    pub(crate) fn of(job: &JobRow) -> Self {
        Self { job: job.id, attempts: job.attempts, certificate: job.certificate }
    }
}
