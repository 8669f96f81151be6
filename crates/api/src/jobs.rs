//! Jobs: issuance, renewal, deployment, revocation.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A run.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Job))]
pub struct JobView {
    /// Its identity.
    pub id: Uuid,
    /// The certificate.
    pub certificate: Uuid,
    /// The certificate's name.
    pub name: String,
    /// `issuance`, `renewal`, `deployment` or `revocation`.
    pub kind: String,
    /// `planned`, `queued`, `running`, `awaiting_approval`, `awaiting_csr`, `done`, `failed` or `cancelled`.
    pub state: String,
    /// The issuer asked.
    pub issuer: String,
    /// The agent that takes part.
    pub agent: Option<Uuid>,
    /// Why there is such a run.
    pub reason: String,
    /// Who wanted it.
    pub requested_by: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it begins, or tries again, RFC 3339.
    pub next_attempt_at: String,
    /// What the last try said.
    pub last_error: Option<String>,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// When it was first tried, RFC 3339.
    pub started_at: Option<String>,
    /// When it ended, RFC 3339.
    pub finished_at: Option<String>,
}

/// Which runs to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct JobQuery {
    /// In this state: `planned` (queued for a time to come), `queued`, `running`, `awaiting_approval`, `awaiting_csr`,
    /// `done`, `failed` or `cancelled`.
    pub state: Option<String>,
    /// Of this kind: `issuance`, `renewal`, `deployment` or `revocation`.
    pub kind: Option<String>,
    /// Open ones of this agent.
    pub agent: Option<Uuid>,
    /// Whether queued runs whose time is to come are listed; true when absent.
    pub planned: Option<bool>,
}
