//! Changes that wait for approval, because a profile that requires approval depends on what they change.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::approvals::{PlanChangeView, PlanFieldView};

/// A change that waits for approval.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Change))]
pub struct ChangeView {
    /// Its identity.
    pub id: Uuid,
    /// The action, as in the audit log: `profile.put`.
    pub action: String,
    /// The object of the change: `profile/vip`.
    pub object: String,
    /// The profiles that require approval and depend on the object; none when the change touches all of them.
    pub profiles: Vec<String>,
    /// `open`, `approved` while it is applied, `applied`, `rejected`, `expired`, or `void` when the object changed meanwhile.
    pub state: String,
    /// Actor that requested it.
    pub requested_by: String,
    /// Time of the request, RFC 3339.
    pub requested_at: String,
    /// Expiry, RFC 3339.
    pub expires_at: String,
    /// Actor that decided.
    pub decided_by: Option<String>,
    /// When, RFC 3339.
    pub decided_at: Option<String>,
    /// The note of the decision, or why the change is void.
    pub note: Option<String>,
    /// What is approved, field by field: the object before and after, each value under its JSON pointer.
    pub plan: Vec<PlanFieldView>,
    /// SHA-256 of the plan's canonical encoding, hexadecimal.
    pub plan_sha256: String,
    /// The values that differ, by JSON pointer.
    pub changes: Vec<PlanChangeView>,
    /// How many people approved it.
    pub approvals_given: u32,
    /// How many people must approve it.
    pub approvals_needed: u32,
    /// Who approved it, the first one first; only where one change is shown.
    pub approvers: Vec<String>,
    /// The secret of the token that the change makes or rotates, only in the answer to the request for it. It works once the change is
    /// applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Which changes to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct ChangeQuery {
    /// `open` (also when absent), `approved`, `applied`, `rejected` or `void`.
    pub state: Option<String>,
}
