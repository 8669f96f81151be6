//! API types of approvals: people other than the requester approve the plan of a run (two-person rule).

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::security_keys::{ApprovalSignatureView, SecurityKeyAssertion};

/// A request to approve the plan of a certificate's run.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Approval))]
pub struct ApprovalView {
    /// UUID of the approval, used in `/api/v1/approvals/{id}`.
    pub id: Uuid,
    /// Managed certificate that the run issues or renews.
    pub certificate: Uuid,
    /// Name of the managed certificate.
    pub name: String,
    /// Profile of the managed certificate.
    pub profile: String,
    /// Renewal run that waits for the approval.
    pub job: Uuid,
    /// State: `open`, `approved`, `rejected`, `expired`, `withdrawn`, or `void` when the plan changed after the request.
    pub state: String,
    /// Reason why an approval is needed.
    pub reason: String,
    /// Actor that requested the renewal run.
    pub requested_by: String,
    /// Time of the request, RFC 3339.
    pub requested_at: String,
    /// Time at which the request expires without a decision, RFC 3339.
    pub expires_at: String,
    /// Actor that approved or rejected.
    pub decided_by: Option<String>,
    /// Time of the decision, RFC 3339.
    pub decided_at: Option<String>,
    /// Note of the actor that approved or rejected.
    pub note: Option<String>,
    /// Fields of the certificate that is issued after the approval. The approval covers exactly this plan.
    #[serde(default)]
    pub plan: Vec<PlanFieldView>,
    /// SHA-256 of the plan's canonical encoding, hexadecimal.
    pub plan_sha256: Option<String>,
    /// Id of the preceding approval of the same certificate.
    pub previous: Option<Uuid>,
    /// Differences between this plan and the plan of the preceding approval. Empty in lists.
    #[serde(default)]
    pub changes: Vec<PlanChangeView>,
    /// Actors that cannot approve: the requester of the run and the actors that changed its plan.
    #[serde(default)]
    pub barred: Vec<String>,
    /// Number of people who have approved this plan.
    #[serde(default)]
    pub approvals_given: u32,
    /// Number of people who must approve this plan.
    #[serde(default)]
    pub approvals_needed: u32,
    /// Actors that approved the plan, in order of approval. Empty in lists.
    #[serde(default)]
    pub approvers: Vec<String>,
    /// Signatures of the approvers by security keys, oldest first. Absent in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<ApprovalSignatureView>,
}

/// A field of a plan, with its values.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = PlanField))]
pub struct PlanFieldView {
    /// Name of the field: `names`, `key`, `profile_version`, …
    pub name: String,
    /// Values of the field; empty where the plan does not determine them.
    pub values: Vec<String>,
}

/// A field that differs from the preceding plan.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = PlanChange))]
pub struct PlanChangeView {
    /// Name of the field.
    pub name: String,
    /// Values in the preceding plan.
    pub before: Vec<String>,
    /// Values in this plan.
    pub after: Vec<String>,
}

/// Request body that approves a plan.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ApproveBody {
    /// A note that is stored with the decision.
    #[cfg_attr(feature = "schemas", schema(max_length = 2000))]
    pub note: Option<String>,
    /// The `plan_sha256` that was shown, hexadecimal. The server rejects the approval with status 409 if the plan has a different
    /// hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_sha256: Option<String>,
    /// Response of the approver's security key, which signs the plan. The configuration of the server can require it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_key: Option<SecurityKeyAssertion>,
}

/// Request body that rejects a plan or change.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DecisionBody {
    /// A note that is stored with the decision.
    #[cfg_attr(feature = "schemas", schema(max_length = 2000))]
    pub note: Option<String>,
}

/// Query parameters of `GET /api/v1/approvals`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct ApprovalQuery {
    /// State to list: `open` (the default), `approved`, `rejected`, `expired`, `withdrawn` or `void`.
    pub state: Option<String>,
}
