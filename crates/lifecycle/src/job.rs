//! Runs of issuance, renewal, deployment and revocation.

use std::fmt;

use serde::{Deserialize, Serialize};
pub use store::states::{Consent, JobKind, JobState};
use uuid::Uuid;

use crate::tables::jobs::{JobRow, JobView};

/// Id of a run: a UUIDv7 (RFC 9562) built from the creation time in µs and the row id. The id needs neither a column nor an
/// index, and is unique within a database.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub Uuid);

impl JobId {
    /// Creates the id of the run with this row id and creation time, in µs since 1970.
    #[must_use]
    pub fn of(row: i64, created_at_us: i64) -> Self {
        // Layout: 48 bits of milliseconds, then the microseconds (RFC 9562 section 6.2, method 3), then the row id.
        let at = u64::try_from(created_at_us).unwrap_or(0);
        let high = (at / 1_000) << 16 | 0x7000 | (at % 1_000);
        let low = 0x8000_0000_0000_0000 | (row.unsigned_abs() & 0x3fff_ffff_ffff_ffff);
        Self(Uuid::from_u64_pair(high, low))
    }

    /// Returns the row id. The caller must check that the creation time of the row matches.
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

/// A run, as the API shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Id of the run, derived from its creation time and its database row.
    pub id: JobId,
    /// Id of the certificate.
    pub certificate: Uuid,
    /// Name of the certificate.
    pub name: String,
    /// Profile of the certificate.
    pub profile: String,
    /// Kind of work: issuance, renewal, deployment or revocation.
    pub kind: JobKind,
    /// State of the run, such as queued, running or waiting for approval.
    pub state: JobState,
    /// Whether the run has not started yet: its start time is in the future and no attempt was made.
    pub planned: bool,
    /// Name of the issuer.
    pub issuer: String,
    /// Id of the agent that creates the CSR or deploys the version. `None` if no agent takes part.
    pub agent: Option<Uuid>,
    /// Reason for the run in one word, such as `planned`, `retry`, `changed` or `revoked`.
    pub reason: String,
    /// Actor that requested the run.
    pub requested_by: String,
    /// Number of attempts so far.
    pub attempts: u32,
    /// Time of the first attempt or the next retry, in µs since 1970.
    pub next_attempt_at_us: i64,
    /// Deadline in µs since 1970; after this time the run fails.
    pub deadline_at_us: i64,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// Creation time, in µs since 1970.
    pub created_at_us: i64,
    /// Time of the first attempt, in µs since 1970.
    pub started_at_us: Option<i64>,
    /// Time when the run ended, in µs since 1970.
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

/// Returns the id of the target from the `detail` column of a deployment run.
pub(crate) fn target_of(detail: &str) -> Option<Uuid> {
    id_in(detail, "target")
}

/// Returns the id of the run that issued the deployed version, from the `detail` column of a deployment run.
pub(crate) fn run_of(detail: &str) -> Option<JobId> {
    id_in(detail, "run").map(JobId)
}

fn id_in(detail: &str, member: &str) -> Option<Uuid> {
    let detail: serde_json::Value = serde_json::from_str(detail).ok()?;
    detail.get(member)?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn job_id_is_a_uuid_v7_that_encodes_its_row(row in 1..i64::MAX >> 2, at in 0..1_i64 << 57) {
            let id = JobId::of(row, at);
            prop_assert_eq!(id.0.get_version_num(), 7);
            prop_assert_eq!(id.0.get_variant(), uuid::Variant::RFC4122);
            prop_assert_eq!(id.row(), row);
            prop_assert_eq!(JobId::of(id.row(), at), id);
            prop_assert_ne!(JobId::of(row, at + 1), id);
        }
    }
}
