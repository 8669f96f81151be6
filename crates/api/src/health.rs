//! API types of health checks, and of the list of server processes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The result of a liveness or readiness check.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct Health {
    /// The constant `ok`.
    pub status: String,
    /// Restrictions that the server applied to its own process; only in the response of `/readyz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxView>,
}

/// Restrictions of the server process. Each is `enforced`, `partial` (old kernel), `off: REASON` or `missing: REASON`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SandboxView {
    /// Whether the process dropped all capabilities except those that its role needs.
    pub capabilities: String,
    /// Whether programs that the server starts cannot gain privileges.
    pub no_new_privileges: String,
    /// Whether dangerous system calls are blocked.
    pub seccomp: String,
    /// Whether access is restricted to the files that the server needs.
    pub landlock: String,
}

/// A server process that uses the same database.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ServerNodeView {
    /// Random identifier that the process chose at startup.
    pub id: Uuid,
    /// Hostname; empty if the system does not provide one.
    #[cfg_attr(feature = "schemas", schema(example = "bulla-1"))]
    pub host: String,
    /// Version of Bulla that the process runs.
    #[cfg_attr(feature = "schemas", schema(example = "0.1.0"))]
    pub version: String,
    /// State: `up`, or `gone` after one minute without a heartbeat.
    #[cfg_attr(feature = "schemas", schema(example = "up"))]
    pub state: String,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// Time of the last heartbeat, RFC 3339.
    pub seen_at: String,
}
