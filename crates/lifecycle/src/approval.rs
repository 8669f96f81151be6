//! The second person: consent to a run, asked for and given.

use authority::plan::{IssuancePlan, PlanDifference};
use authority::quorum::Progress;
use store::patience;
pub use store::states::ApprovalState;
use uuid::Uuid;

use crate::job::JobId;
use crate::tables::approvals::{ApprovalRow, ApprovalView};
use crate::tables::jobs::JobRow;

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
    /// The state.
    pub state: ApprovalState,
    /// Why consent is needed.
    pub reason: String,
    /// Actor that requested the run.
    pub requested_by: String,
    /// Time of the request, µs.
    pub requested_at_us: i64,
    /// Expiry, µs.
    pub expires_at_us: i64,
    /// Actor that decided.
    pub decided_by: Option<String>,
    /// When, µs.
    pub decided_at_us: Option<i64>,
    /// The note with the decision.
    pub note: Option<String>,
    /// What is issued if the approval is given; `None` for approvals from before plans were stored, which are void.
    pub plan: Option<IssuancePlan>,
    /// SHA-256 of the plan's canonical encoding.
    pub plan_sha256: Option<[u8; 32]>,
    /// The approval of the certificate before this one.
    pub previous: Option<Uuid>,
    /// How the plan differs from that of the approval before.
    pub changes: Vec<PlanDifference>,
    /// The actors that cannot approve: who asked for the run, and who changed the plan.
    pub barred: Vec<String>,
    /// How many people approved the plan, and how many must.
    pub progress: Progress,
    /// Who approved the plan, the first one first; only where one approval is read.
    pub approvers: Vec<String>,
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
            state: row.state,
            reason: row.reason.clone(),
            requested_by: row.requested_by.clone(),
            requested_at_us: row.requested_at_us,
            expires_at_us: row.expires_at_us,
            decided_by: row.decided_by.clone(),
            decided_at_us: row.decided_at_us,
            note: row.note.clone(),
            plan: row.plan.as_deref().and_then(|text| serde_json::from_str(text).ok()),
            plan_sha256: row.plan_sha256,
            previous: row.previous,
            changes: Vec::new(),
            barred: row.barred.clone(),
            progress: Progress { given: view.given, needed: row.needed },
            approvers: Vec::new(),
        }
    }
}

/// The approval that a run of a certificate that lives so long needs.
pub(crate) fn approval_of(job: &JobRow, reason: &str, life_us: i64, now_us: i64) -> ApprovalRow {
    ApprovalRow {
        id: 0,
        uuid: Uuid::now_v7(),
        job: job.id,
        certificate: job.certificate,
        state: ApprovalState::Open,
        reason: reason.to_owned(),
        requested_by: job.requested_by.clone(),
        requested_at_us: now_us,
        expires_at_us: now_us + patience::approval_us(life_us),
        decided_by: None,
        decided_at_us: None,
        note: None,
        plan: None,
        plan_sha256: None,
        previous: None,
        barred: Vec::new(),
        needed: 1,
    }
}
