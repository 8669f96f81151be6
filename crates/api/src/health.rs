//! Health of the server.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How the server is.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct Health {
    /// `ok`.
    pub status: String,
    /// The restrictions that the server put on its own process; only of `/readyz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxView>,
}

/// Restrictions of a process: `enforced`, `partial` (an old kernel), `off: REASON` or `missing: REASON`.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SandboxView {
    /// Whether capabilities were dropped, all but those that its role needs.
    pub capabilities: String,
    /// Whether programs that it starts can gain no privilege.
    pub no_new_privileges: String,
    /// Whether dangerous system calls fail.
    pub seccomp: String,
    /// Whether files elsewhere are closed.
    pub landlock: String,
}

/// A server process that uses the same database.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct ServerNodeView {
    /// A number that it chose at startup.
    pub id: Uuid,
    /// The name of its host; empty where the system does not say.
    #[cfg_attr(feature = "schemas", schema(example = "bulla-1"))]
    pub host: String,
    /// The version of the program.
    #[cfg_attr(feature = "schemas", schema(example = "0.1.0"))]
    pub version: String,
    /// `up`, or `gone` when it has not been seen for a minute.
    #[cfg_attr(feature = "schemas", schema(example = "up"))]
    pub state: String,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// Time of the last heartbeat, RFC 3339.
    pub seen_at: String,
}
