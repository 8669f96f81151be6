//! Runs of issuance, renewal, deployment and revocation.

use std::fmt;

use serde::{Deserialize, Serialize};
pub use store::states::{Consent, JobKind, JobState};
use uuid::Uuid;

use crate::tables::jobs::{JobRow, JobView};

/// Names a run: a UUIDv7 (RFC 9562) made of the time it was made, to the microsecond, and its row. So it needs no column
/// and no index, and two runs of one database never share one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub Uuid);

impl JobId {
    /// Of a row made at a time, µs.
    #[must_use]
    pub fn of(row: i64, created_at_us: i64) -> Self {
        // 48 bits of milliseconds, then the microseconds of RFC 9562 section 6.2 method 3, then the row.
        let at = u64::try_from(created_at_us).unwrap_or(0);
        let high = (at / 1_000) << 16 | 0x7000 | (at % 1_000);
        let low = 0x8000_0000_0000_0000 | (row.unsigned_abs() & 0x3fff_ffff_ffff_ffff);
        Self(Uuid::from_u64_pair(high, low))
    }

    /// The row it would be, if it is one of ours: its time of making has to be that of the row.
    #[must_use]
    pub fn row(self) -> i64 {
        let (_, low) = self.0.as_u64_pair();
        (low & 0x3fff_ffff_ffff_ffff) as i64
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A run, for reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Which.
    pub id: JobId,
    /// The certificate.
    pub certificate: Uuid,
    /// Its name.
    pub name: String,
    /// Its profile.
    pub profile: String,
    /// The kind of work.
    pub kind: JobKind,
    /// The state.
    pub state: JobState,
    /// Whether its time is yet to come and it was never tried.
    pub planned: bool,
    /// The issuer.
    pub issuer: String,
    /// The agent that takes part.
    pub agent: Option<Uuid>,
    /// Why there is such a run, a word.
    pub reason: String,
    /// Actor that requested it.
    pub requested_by: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it begins, or tries again, µs.
    pub next_attempt_at_us: i64,
    /// Deadline: the run fails after it, µs.
    pub deadline_at_us: i64,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// When it was first tried, µs.
    pub started_at_us: Option<i64>,
    /// End time, µs.
    pub finished_at_us: Option<i64>,
}

impl Job {
    pub(crate) fn from_view(view: &JobView, now_us: i64) -> Self {
        let row = &view.job;
        let state = row.state;
        Self {
            id: id_of(row),
            certificate: view.certificate,
            name: view.name.clone(),
            profile: view.profile.clone(),
            kind: row.kind,
            state,
            planned: state == JobState::Queued && row.attempts == 0 && row.next_attempt_at_us > now_us,
            issuer: row.issuer.clone(),
            agent: row.agent,
            reason: row.reason.clone(),
            requested_by: row.requested_by.clone(),
            attempts: u32::try_from(row.attempts).unwrap_or(u32::MAX),
            next_attempt_at_us: row.next_attempt_at_us,
            deadline_at_us: row.deadline_at_us,
            last_error: row.last_error.clone(),
            created_at_us: row.created_at_us,
            started_at_us: row.started_at_us,
            finished_at_us: row.finished_at_us,
        }
    }
}

pub(crate) fn id_of(row: &JobRow) -> JobId {
    JobId::of(row.id, row.created_at_us)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_job_id_is_a_uuid_version_7_that_names_its_row(row in 1..i64::MAX >> 2, at in 0..1_i64 << 57) {
            let id = JobId::of(row, at);
            prop_assert_eq!(id.0.get_version_num(), 7);
            prop_assert_eq!(id.0.get_variant(), uuid::Variant::RFC4122);
            prop_assert_eq!(id.row(), row);
            prop_assert_eq!(JobId::of(id.row(), at), id);
            prop_assert_ne!(JobId::of(row, at + 1), id);
        }
    }
}
