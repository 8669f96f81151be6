//! Approvals of the two-person rule.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Consent asked for.
#[derive(Serialize)]
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
    /// `open`, `approved`, `rejected`, `expired` or `withdrawn`.
    pub state: String,
    /// Why consent is needed.
    pub reason: String,
    /// Who wants the run.
    pub requested_by: String,
    /// When it was asked for, RFC 3339.
    pub requested_at: String,
    /// When it lapses, RFC 3339.
    pub expires_at: String,
    /// Who decided.
    pub decided_by: Option<String>,
    /// When, RFC 3339.
    pub decided_at: Option<String>,
    /// What they said.
    pub note: Option<String>,
}

/// A decision.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DecisionBody {
    /// What you say about it.
    #[cfg_attr(feature = "schemas", schema(max_length = 2000))]
    pub note: Option<String>,
}

/// Which approvals to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct ApprovalQuery {
    /// `open` (also when absent), `approved`, `rejected`, `expired` or `withdrawn`.
    pub state: Option<String>,
}
