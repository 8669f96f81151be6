//! Who may do something with a name, and why: not in CredHub.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The query of `GET /api/v1/access`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct AccessQuery {
    /// A name, or all below a path: `/team/*`.
    pub name: Option<String>,
    /// `read` (default), `write`, `delete`, `read_acl`, `write_acl`.
    pub operation: Option<String>,
    /// Only actors who may with one of both paths and not with the other.
    pub compared_with: Option<String>,
    /// Only actors who gained or lost it since, RFC 3339; not with `compared_with`.
    pub since: Option<String>,
}

/// One way by which an actor may.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AccessView {
    /// The actor.
    pub actor: String,
    /// The permission.
    pub permission: Option<Uuid>,
    /// The permission's path.
    pub path: Option<String>,
    /// The role, if the grant came from one.
    pub role: Option<String>,
    /// Since when, RFC 3339.
    pub since: String,
    /// When the permission last changed, RFC 3339.
    pub changed_at: Option<String>,
    /// Actor that granted it.
    pub given_by: Option<String>,
}

/// An actor who may with one of two paths and not with the other.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AccessDifferenceView {
    /// The actor.
    pub actor: String,
    /// The path or role by which the actor may with `name`.
    pub here: Option<String>,
    /// The path or role by which the actor may with `compared_with`.
    pub there: Option<String>,
}

/// An actor that gained or lost a permission.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AccessChangeView {
    /// When, RFC 3339.
    pub at: String,
    /// The actor.
    pub actor: String,
    /// The permission's path.
    pub path: String,
    /// `gained` or `lost`.
    pub change: String,
    /// Actor that made the change.
    pub by: String,
}
