//! Enrolments over EST and SCEP that wait for an approval.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::approvals::PlanFieldView;
use crate::security_keys::{ApprovalSignatureView, SecurityKeyAssertion};

/// State of an EST or SCEP enrolment that requires approval.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EnrolmentStatus {
    /// The request waits for a decision.
    #[default]
    Open,
    /// Approved. The client receives the certificate at its next request.
    Approved,
    /// Rejected. The client receives the rejection at its next request.
    Rejected,
}

/// An enrolment request that waits for a decision or was decided.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct EnrolmentView {
    /// UUID of the enrolment, used in `/api/v1/enrolments/{id}`.
    pub id: Uuid,
    /// Protocol of the request: `est` or `scep`.
    pub protocol: String,
    /// Name of the profile that the client requested.
    pub profile: String,
    /// Actor that requested the certificate.
    pub requester: String,
    /// Requested subject and names.
    pub asks: String,
    /// State: `open`, `approved` or `rejected`.
    pub state: EnrolmentStatus,
    /// Time of the request, RFC 3339.
    pub requested_at: String,
    /// Expiry time, RFC 3339.
    pub expires_at: String,
    /// Actor that approved or rejected.
    pub decided_by: Option<String>,
    /// Time of the decision, RFC 3339.
    pub decided_at: Option<String>,
    /// Note of the actor that approved or rejected.
    pub note: Option<String>,
    /// Fields of the certificate that is issued after the approval. The approval covers exactly this plan.
    pub plan: Vec<PlanFieldView>,
    /// SHA-256 of the plan's canonical encoding, hexadecimal.
    pub plan_sha256: Option<String>,
    /// Number of people who have approved this plan.
    pub approvals_given: u32,
    /// Number of people who must approve this plan.
    pub approvals_needed: u32,
    /// Actors that approved the plan, in order of approval. Empty in lists.
    pub approvers: Vec<String>,
    /// Signatures of the approvers by security keys, oldest first. Absent in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<ApprovalSignatureView>,
}

/// Request body that approves or rejects an enrolment.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = Said))]
pub struct DecisionBody {
    /// Note that is stored with the decision. After a rejection, the client receives the note too.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 2000))]
    pub note: String,
    /// The `plan_sha256` that was shown, hexadecimal. The server rejects an approval with status 409 if the plan has a different
    /// hash.
    #[serde(default)]
    pub plan_sha256: Option<String>,
    /// Response of the approver's security key, which signs the plan. The configuration of the server can require it.
    #[serde(default)]
    pub security_key: Option<SecurityKeyAssertion>,
}
