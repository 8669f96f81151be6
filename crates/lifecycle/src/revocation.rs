//! A revocation that this process has claimed, and its reason.

use store::jobs::JobRow;
use x509::crl::Reason;

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

/// The reason of a number that was checked when it was asked for.
pub(crate) fn reason(code: i64) -> Reason {
    match code {
        1 => Reason::KeyCompromise,
        3 => Reason::AffiliationChanged,
        4 => Reason::Superseded,
        5 => Reason::CessationOfOperation,
        9 => Reason::PrivilegeWithdrawn,
        _ => Reason::Unspecified,
    }
}
