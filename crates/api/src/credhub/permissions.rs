//! Permissions, in both of CredHub's versions.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::lenient;

/// The query of permissions. Version 1 wants `credential_name`, version 2 `path` and `actor`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct PermissionsQuery {
    /// A name, or all below a path: `/team/*`.
    pub credential_name: Option<String>,
    /// A name, or all below a path: `/team/*`.
    pub path: Option<String>,
    /// The actor.
    pub actor: Option<String>,
}

/// A permission, as version 2 writes it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PermissionView {
    /// Its identity.
    pub uuid: Uuid,
    /// A name, or all below a path: `/team/*`.
    pub path: String,
    /// The actor.
    pub actor: String,
    /// `read`, `write`, `delete`, `read_acl`, `write_acl`.
    pub operations: Vec<String>,
}

/// A permission to make or replace: version 2.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionRequest {
    /// A name, or all below a path: `/team/*`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub path: String,
    /// The actor.
    #[serde(default, deserialize_with = "lenient::text")]
    pub actor: String,
    /// `read`, `write`, `delete`, `read_acl`, `write_acl`.
    #[serde(default, deserialize_with = "lenient::operations")]
    pub operations: Vec<String>,
    /// Read and ignored: CredHub's clients send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Value>,
}

/// The operations of a permission to change: version 2.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OperationsChange {
    /// `read`, `write`, `delete`, `read_acl`, `write_acl`.
    #[serde(default, deserialize_with = "lenient::operations")]
    pub operations: Vec<String>,
}

/// Permissions for exactly one name or path, listed or to add: version 1.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NamePermissions<E = PermissionEntry> {
    /// A name, or all below a path: `/team/*`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub credential_name: String,
    /// The permissions.
    pub permissions: Option<Vec<E>>,
}

/// What one actor may do: version 1.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PermissionEntry {
    /// The actor.
    #[serde(default, deserialize_with = "lenient::text")]
    pub actor: String,
    /// In a listing, the name or path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `read`, `write`, `delete`, `read_acl`, `write_acl`.
    #[serde(default, deserialize_with = "lenient::operations")]
    pub operations: Vec<String>,
}
