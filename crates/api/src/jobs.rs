//! Jobs: issuance, renewal, deployment, revocation.

use serde::{Deserialize, Serialize};
use serde_json::Value;
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
    /// The issuer.
    pub issuer: String,
    /// The agent that takes part.
    pub agent: Option<Uuid>,
    /// Why there is such a run.
    pub reason: String,
    /// Actor that requested it.
    pub requested_by: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it begins, or tries again, RFC 3339.
    pub next_attempt_at: String,
    /// Error of the last attempt.
    pub last_error: Option<String>,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// When it was first tried, RFC 3339.
    pub started_at: Option<String>,
    /// End time, RFC 3339.
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

/// Something that happened in a run.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct JobEventView {
    /// When, RFC 3339.
    pub at: String,
    /// The action, as in the audit log.
    #[cfg_attr(feature = "schemas", schema(example = "certificate.issue"))]
    pub action: String,
    /// Actor that did it.
    #[cfg_attr(feature = "schemas", schema(example = "system:scheduler"))]
    pub actor: String,
    /// The rest: states, serial number, error.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub details: Value,
}

/// Work of the scheduler on all nodes.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SchedulerView {
    /// Runs that are with an issuer or an agent.
    pub running: u64,
    /// Runs that wait for approval.
    pub awaiting_approval: u64,
    /// Runs that wait for an agent's certification request.
    pub awaiting_csr: u64,
    /// Runs that are due and not begun, by issuer.
    pub due: Vec<DueView>,
    /// Counting stops here: as many means "at least".
    #[cfg_attr(feature = "schemas", schema(example = 10000))]
    pub counted_to: u64,
    /// Work that one process does for the whole cluster.
    pub leases: Vec<LeaseView>,
}

/// What is due at one issuer.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct DueView {
    /// The issuer.
    #[cfg_attr(feature = "schemas", schema(example = "internal"))]
    pub issuer: String,
    /// Runs that are due and not begun.
    pub count: u64,
    /// Seconds that the oldest of them is late.
    pub late_seconds: i64,
}

/// A lease: one process holds it and does the work.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct LeaseView {
    /// The work.
    #[cfg_attr(feature = "schemas", schema(example = "alerts"))]
    pub name: String,
    /// The process, by a number that it chose at startup.
    pub holder: Uuid,
    /// When it ends unless renewed, RFC 3339.
    pub until: String,
}
