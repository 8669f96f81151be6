//! Approvals of runs by a second person.

use authority::plan::{IssuancePlan, PlanDifference};
use authority::quorum::Progress;
pub use store::states::ApprovalState;
use store::time_limits;
use uuid::Uuid;

use crate::job::JobId;
use crate::tables::approvals::{ApprovalRow, ApprovalView};
use crate::tables::jobs::JobRow;

/// Approval of a run, as the API shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Approval {
    /// Public id of the approval; appears in API paths.
    pub id: Uuid,
    /// Id of the certificate.
    pub certificate: Uuid,
    /// Name of the certificate.
    pub name: String,
    /// Profile of the certificate.
    pub profile: String,
    /// Id of the run that needs the approval.
    pub job: JobId,
    /// State: open, approved, rejected, expired, withdrawn or void.
    pub state: ApprovalState,
    /// Reason why an approval is needed.
    pub reason: String,
    /// Actor that requested the run.
    pub requested_by: String,
    /// Time of the request, in µs since 1970.
    pub requested_at_us: i64,
    /// Time when the approval expires, in µs since 1970.
    pub expires_at_us: i64,
    /// Actor that approved or rejected the run; `system:approvals` if the approval expired. `None` without a decision.
    pub decided_by: Option<String>,
    /// Time when the approval was decided, expired, withdrawn or voided, in µs since 1970.
    pub decided_at_us: Option<i64>,
    /// Comment by the actor in `decided_by`.
    pub note: Option<String>,
    /// The issuance plan to be approved. `None` for approvals that were created before Bulla stored plans; such approvals are void.
    pub plan: Option<IssuancePlan>,
    /// SHA-256 of the plan's canonical encoding.
    pub plan_sha256: Option<[u8; 32]>,
    /// Id of the previous approval of the same certificate.
    pub previous: Option<Uuid>,
    /// Differences between the plans of this approval and the previous one.
    pub changes: Vec<PlanDifference>,
    /// Actors that cannot approve: the actor that requested the run, and actors that changed the plan.
    pub barred: Vec<String>,
    /// Number of approvals given, and number of approvals required.
    pub progress: Progress,
    /// Actors that approved the plan, in order. Empty in lists of approvals.
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

/// Creates the approval for a run of a certificate whose lifetime is `life_us`.
pub(crate) fn new_approval(job: &JobRow, reason: &str, life_us: i64, now_us: i64) -> ApprovalRow {
    ApprovalRow {
        id: 0,
        uuid: Uuid::now_v7(),
        job: job.id,
        certificate: job.certificate,
        state: ApprovalState::Open,
        reason: reason.to_owned(),
        requested_by: job.requested_by.clone(),
        requested_at_us: now_us,
        expires_at_us: now_us + time_limits::approval_timeout_us(life_us),
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
