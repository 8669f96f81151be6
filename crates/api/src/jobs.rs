//! Jobs: issuance, renewal, deployment, revocation.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// A run for a managed certificate: its issuance, renewal, deployment or revocation.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = Job))]
pub struct JobView {
    /// UUID of the run, used in `/api/v1/jobs/{id}`.
    pub id: Uuid,
    /// UUID of the managed certificate, as in `/api/v1/certificates/{id}`.
    pub certificate: Uuid,
    /// Name of the managed certificate.
    pub name: String,
    /// Kind of run: `issuance`, `renewal`, `deployment` or `revocation`.
    pub kind: String,
    /// State: `planned`, `queued`, `running`, `awaiting_approval`, `awaiting_csr`, `done`, `failed` or `cancelled`.
    pub state: String,
    /// Name of the issuer; `internal` for the CA of this server.
    pub issuer: String,
    /// Agent that takes part in the run.
    pub agent: Option<Uuid>,
    /// Reason for the run.
    pub reason: String,
    /// Actor that requested the run.
    pub requested_by: String,
    /// Number of attempts so far.
    pub attempts: u32,
    /// Time of the first or next attempt, RFC 3339.
    pub next_attempt_at: String,
    /// Error of the last failed attempt.
    pub last_error: Option<String>,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the first attempt, RFC 3339.
    pub started_at: Option<String>,
    /// End time, RFC 3339.
    pub finished_at: Option<String>,
}

/// Query parameters of `GET /api/v1/jobs`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "schemas", into_params(parameter_in = Query))]
pub struct JobQuery {
    /// Only runs in this state: `planned` (queued for a later time), `queued`, `running`, `awaiting_approval`, `awaiting_csr`,
    /// `done`, `failed` or `cancelled`.
    pub state: Option<String>,
    /// Only runs of this kind: `issuance`, `renewal`, `deployment` or `revocation`.
    pub kind: Option<String>,
    /// Only unfinished runs of this agent.
    pub agent: Option<Uuid>,
    /// Whether to include queued runs that are not yet due; true when absent.
    pub planned: Option<bool>,
}

/// An event of a run, from the audit log.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct JobEventView {
    /// Time of the event, RFC 3339.
    pub at: String,
    /// The action, as in the audit log.
    #[cfg_attr(feature = "schemas", schema(example = "certificate.issue"))]
    pub action: String,
    /// Actor that performed the action.
    #[cfg_attr(feature = "schemas", schema(example = "system:scheduler"))]
    pub actor: String,
    /// Further details: states, serial number, error.
    #[cfg_attr(feature = "schemas", schema(value_type = Object))]
    pub details: Value,
}

/// State of the scheduler on all nodes: the number of runs by state, and the leases.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SchedulerView {
    /// Number of runs in progress at an issuer or an agent.
    pub running: u64,
    /// Number of runs that wait for approval.
    pub awaiting_approval: u64,
    /// Number of runs that wait for the CSR of an agent.
    pub awaiting_csr: u64,
    /// Runs that are due but not started, by issuer.
    pub due: Vec<DueView>,
    /// Limit for the counts. A count equal to the limit means "at least".
    #[cfg_attr(feature = "schemas", schema(example = 10000))]
    pub counted_to: u64,
    /// Leases of the jobs that one process does for the whole cluster.
    pub leases: Vec<LeaseView>,
}

/// The runs that are due at one issuer.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct DueView {
    /// Name of the issuer.
    #[cfg_attr(feature = "schemas", schema(example = "internal"))]
    pub issuer: String,
    /// Number of runs that are due but not started.
    pub count: u64,
    /// Delay of the oldest of these runs in seconds.
    pub late_seconds: i64,
}

/// A lease. The process that holds it does the job for the whole cluster.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct LeaseView {
    /// Name of the job that the lease protects.
    #[cfg_attr(feature = "schemas", schema(example = "alerts"))]
    pub name: String,
    /// Process that holds the lease, by the random identifier that it chose at startup.
    pub holder: Uuid,
    /// Expiry time of the lease unless it is renewed, RFC 3339.
    pub until: String,
}
