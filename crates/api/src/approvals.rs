//! Approvals of the two-person rule.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A request for approval.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Approval))]
pub struct ApprovalView {
    /// Its identity.
    pub id: Uuid,
    /// The certificate.
    pub certificate: Uuid,
    /// The certificate's name.
    pub name: String,
    /// The certificate's profile.
    pub profile: String,
    /// The run.
    pub job: Uuid,
    /// `open`, `approved`, `rejected`, `expired`, `withdrawn`, or `void` when the plan changed after approval was asked for.
    pub state: String,
    /// Why consent is needed.
    pub reason: String,
    /// Actor that requested the run.
    pub requested_by: String,
    /// Time of the request, RFC 3339.
    pub requested_at: String,
    /// Expiry, RFC 3339.
    pub expires_at: String,
    /// Actor that decided.
    pub decided_by: Option<String>,
    /// When, RFC 3339.
    pub decided_at: Option<String>,
    /// The note with the decision.
    pub note: Option<String>,
    /// What is issued if the approval is given, field by field. An approval is given for exactly this.
    #[serde(default)]
    pub plan: Vec<PlanFieldView>,
    /// SHA-256 of the plan's canonical encoding, hexadecimal.
    pub plan_sha256: Option<String>,
    /// The approval of the certificate before this one.
    pub previous: Option<Uuid>,
    /// How the plan differs from that of the approval before; only where one approval is shown.
    #[serde(default)]
    pub changes: Vec<PlanChangeView>,
    /// The actors that cannot approve: who asked for the run, and who changed its plan.
    #[serde(default)]
    pub barred: Vec<String>,
    /// How many people approved this plan.
    #[serde(default)]
    pub approvals_given: u32,
    /// How many people must approve it.
    #[serde(default)]
    pub approvals_needed: u32,
    /// Who approved it, the first one first; only where one approval is shown.
    #[serde(default)]
    pub approvers: Vec<String>,
}

/// A field of a plan.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = PlanField))]
pub struct PlanFieldView {
    /// The field's name: `names`, `key`, `profile_version`, …
    pub name: String,
    /// Its values; none where the plan leaves it open.
    pub values: Vec<String>,
}

/// A field that differs from the plan before.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = PlanChange))]
pub struct PlanChangeView {
    /// The field's name.
    pub name: String,
    /// The values before.
    pub before: Vec<String>,
    /// The values now.
    pub after: Vec<String>,
}

/// The approval of a plan.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ApproveBody {
    /// A note that is stored with the decision.
    #[cfg_attr(feature = "schemas", schema(max_length = 2000))]
    pub note: Option<String>,
    /// The `plan_sha256` that was shown, hexadecimal. The server refuses the approval with 409 if the plan has another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_sha256: Option<String>,
}

/// A rejection.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DecisionBody {
    /// A note with the decision.
    #[cfg_attr(feature = "schemas", schema(max_length = 2000))]
    pub note: Option<String>,
}

/// Which approvals to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct ApprovalQuery {
    /// `open` (also when absent), `approved`, `rejected`, `expired`, `withdrawn` or `void`.
    pub state: Option<String>,
}
