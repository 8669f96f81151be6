//! Health of the server.

use serde::Serialize;

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
