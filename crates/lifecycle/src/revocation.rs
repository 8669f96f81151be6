//! A revocation claimed by this process.

use crate::tables::jobs::JobRow;

/// A run that revokes a certificate, claimed by this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimedRevocation {
    /// Row id of the run.
    pub(crate) job: i64,
    /// Number of times the run was claimed.
    pub(crate) attempts: i64,
    /// Row id of the certificate.
    pub(crate) certificate: i64,
}

impl ClaimedRevocation {
    pub(crate) fn of(job: &JobRow) -> Self {
        Self { job: job.id, attempts: job.attempts, certificate: job.certificate }
    }
}
