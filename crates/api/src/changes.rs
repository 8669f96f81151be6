//! Changes that wait for approval because they affect a profile that requires approval.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::approvals::{PlanChangeView, PlanFieldView};
use crate::security_keys::ApprovalSignatureView;

/// A change that waits for approval.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Change))]
pub struct ChangeView {
    /// UUID of the change, used in `/api/v1/changes/{id}`.
    pub id: Uuid,
    /// The action, such as `profile.put`.
    pub action: String,
    /// Object of the change, such as `profile/vip`.
    pub object: String,
    /// Profiles that require approval and depend on the object; empty if the change affects all of them.
    pub profiles: Vec<String>,
    /// State: `open`, `approved` (the server is applying the change), `applied`, `rejected`, `expired`, or `void` (the object was
    /// changed after the request).
    pub state: String,
    /// Actor that requested the change.
    pub requested_by: String,
    /// Time of the request, RFC 3339.
    pub requested_at: String,
    /// Time at which the request expires without a decision, RFC 3339.
    pub expires_at: String,
    /// Actor that approved or rejected the change.
    pub decided_by: Option<String>,
    /// Time of the decision, RFC 3339.
    pub decided_at: Option<String>,
    /// Note of the decision, or the reason why the change is void.
    pub note: Option<String>,
    /// The plan to approve, field by field: the object before and after the change, with a JSON pointer for each value.
    pub plan: Vec<PlanFieldView>,
    /// SHA-256 of the plan's canonical encoding, hexadecimal.
    pub plan_sha256: String,
    /// Values that the change modifies, by JSON pointer.
    pub changes: Vec<PlanChangeView>,
    /// Number of people who have approved the change.
    pub approvals_given: u32,
    /// Number of people who must approve the change.
    pub approvals_needed: u32,
    /// Actors that approved the change, in order of approval. Empty in lists.
    pub approvers: Vec<String>,
    /// Signatures of the approvers by security keys, oldest first. Absent in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<ApprovalSignatureView>,
    /// Secret of the token that the change creates or rotates. It is present only in the response to the request for the change,
    /// and valid only after the change is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Query parameters of `GET /api/v1/changes`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct ChangeQuery {
    /// State to list: `open` (the default), `approved`, `applied`, `rejected` or `void`.
    pub state: Option<String>,
}
