//! The second person: consent to a run, asked for and given.

use serde::{Deserialize, Serialize};
use store::approvals::{ApprovalRow, ApprovalView};
use store::jobs::JobRow;
use uuid::Uuid;

use crate::job::JobId;

/// How long an approval may take, µs. After it the run is over, and planned anew.
pub(crate) const APPROVAL_PATIENCE_US: i64 = 7 * 86_400_000_000;

/// Where an approval stands. The numbers are those of the database.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// Nobody has decided.
    Open = 0,
    /// Consent was given.
    Approved = 1,
    /// It was refused.
    Rejected = 2,
    /// Nobody decided in time.
    Expired = 3,
    /// The run ended otherwise.
    Withdrawn = 4,
}

impl ApprovalState {
    /// Every one, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Open, Self::Approved, Self::Rejected, Self::Expired, Self::Withdrawn];

    /// The number stored.
    #[must_use]
    pub fn code(self) -> i64 {
        self as i64
    }

    /// That of a stored number.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        usize::try_from(code).ok().and_then(|at| Self::ALL.get(at)).copied()
    }

    /// The word shown to people and programs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// An approval, for reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Approval {
    /// Its identity.
    pub id: Uuid,
    /// The certificate.
    pub certificate: Uuid,
    /// Its name.
    pub name: String,
    /// Its profile.
    pub profile: String,
    /// The run.
    pub job: JobId,
    /// Where it stands.
    pub state: ApprovalState,
    /// Why consent is needed.
    pub reason: String,
    /// Who wants the run.
    pub requested_by: String,
    /// When it was asked for, µs.
    pub requested_at_us: i64,
    /// When it lapses, µs.
    pub expires_at_us: i64,
    /// Who decided.
    pub decided_by: Option<String>,
    /// When, µs.
    pub decided_at_us: Option<i64>,
    /// What they said.
    pub note: Option<String>,
}

impl Approval {
    pub(crate) fn from_view(view: &ApprovalView) -> Self {
        let row = &view.approval;
        Self {
            id: row.uuid,
            certificate: view.certificate,
            name: view.name.clone(),
            profile: view.profile.clone(),
            job: JobId::of(row.job, view.job_created_at_us),
            state: ApprovalState::from_code(row.state).unwrap_or(ApprovalState::Withdrawn),
            reason: row.reason.clone(),
            requested_by: row.requested_by.clone(),
            requested_at_us: row.requested_at_us,
            expires_at_us: row.expires_at_us,
            decided_by: row.decided_by.clone(),
            decided_at_us: row.decided_at_us,
            note: row.note.clone(),
        }
    }
}

/// The approval that a run needs.
pub(crate) fn approval_of(job: &JobRow, reason: &str, now_us: i64) -> ApprovalRow {
    ApprovalRow {
        id: 0,
        uuid: Uuid::now_v7(),
        job: job.id,
        certificate: job.certificate,
        state: ApprovalState::Open.code(),
        reason: reason.to_owned(),
        requested_by: job.requested_by.clone(),
        requested_at_us: now_us,
        expires_at_us: now_us + APPROVAL_PATIENCE_US,
        decided_by: None,
        decided_at_us: None,
        note: None,
    }
}
