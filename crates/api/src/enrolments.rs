//! Enrollments over EST and SCEP that wait for an approval.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::approvals::PlanFieldView;

/// The state of an enrolment.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EnrolmentStatus {
    /// The request waits for a decision.
    #[default]
    Open,
    /// The client gets its certificate when it asks again.
    Approved,
    /// Rejected; the client learns it at its next request.
    Rejected,
}

/// A request for a certificate that waits, or was decided.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct EnrolmentView {
    /// Its identity.
    pub id: Uuid,
    /// `est` or `scep`.
    pub protocol: String,
    /// The profile of the request.
    pub profile: String,
    /// The requester.
    pub requester: String,
    /// Subject and names asked for.
    pub asks: String,
    /// Its state.
    pub state: EnrolmentStatus,
    /// Time of the request, RFC 3339.
    pub requested_at: String,
    /// Expiry.
    pub expires_at: String,
    /// Actor that decided.
    pub decided_by: Option<String>,
    /// When, RFC 3339.
    pub decided_at: Option<String>,
    /// The note of the decision.
    pub note: Option<String>,
    /// What is issued if the enrolment is approved, field by field. An approval is given for exactly this.
    pub plan: Vec<PlanFieldView>,
    /// SHA-256 of the plan's canonical encoding, hexadecimal.
    pub plan_sha256: Option<String>,
    /// How many people approved this plan.
    pub approvals_given: u32,
    /// How many people must approve it.
    pub approvals_needed: u32,
    /// Who approved it, the first one first; only where one enrolment is shown.
    pub approvers: Vec<String>,
}

/// A note with a decision.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = Said))]
pub struct DecisionBody {
    /// Kept with the decision; on a rejection the client is told, too.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 2000))]
    pub note: String,
    /// The `plan_sha256` that was shown, hexadecimal. The server refuses an approval with 409 if the plan has another one.
    #[serde(default)]
    pub plan_sha256: Option<String>,
}
