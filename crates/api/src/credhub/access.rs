//! API types of `GET /api/v1/access`: the actors that can access a credential, and the permission or role that grants it. CredHub
//! has no such endpoint.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The query of `GET /api/v1/access`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct AccessQuery {
    /// Name of a credential, or all credentials below a path: `/team/*`.
    pub name: Option<String>,
    /// Operation: `read` (the default), `write`, `delete`, `read_acl` or `write_acl`.
    pub operation: Option<String>,
    /// A second name or path. The response lists only actors that have access to exactly one of the two.
    pub compared_with: Option<String>,
    /// Only actors that gained or lost access since this time, RFC 3339. Not allowed with `compared_with`.
    pub since: Option<String>,
}

/// One permission or role that gives an actor access.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AccessView {
    /// Actor that has access.
    pub actor: String,
    /// UUID of the permission, if a permission gives the access.
    pub permission: Option<Uuid>,
    /// Path of the permission, if a permission gives the access.
    pub path: Option<String>,
    /// Name of the role, if a role gives the access.
    pub role: Option<String>,
    /// Start of the access, RFC 3339.
    pub since: String,
    /// Time of the permission's last change, RFC 3339.
    pub changed_at: Option<String>,
    /// Actor that granted the permission.
    pub given_by: Option<String>,
}

/// An actor that has access to exactly one of two paths.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AccessDifferenceView {
    /// Actor that has access.
    pub actor: String,
    /// Path or role that gives access to `name`.
    pub here: Option<String>,
    /// Path or role that gives access to `compared_with`.
    pub there: Option<String>,
}

/// An actor that gained or lost a permission.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AccessChangeView {
    /// Time of the change, RFC 3339.
    pub at: String,
    /// Actor whose permission changed.
    pub actor: String,
    /// Path of the permission.
    pub path: String,
    /// Kind of change: `gained` or `lost`.
    pub change: String,
    /// Actor that made the change.
    pub by: String,
}
