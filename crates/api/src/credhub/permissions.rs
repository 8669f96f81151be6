//! Permissions, in both versions of CredHub's permission API.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::lenient;

/// Query parameters that select permissions. Version 1 of the API requires `credential_name`; version 2 requires `path` and
/// `actor`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct PermissionsQuery {
    /// Name of a credential, or all credentials below a path: `/team/*`.
    pub credential_name: Option<String>,
    /// Name of a credential, or all credentials below a path: `/team/*`.
    pub path: Option<String>,
    /// Actor that has the permission, such as `uaa-client:ci`.
    pub actor: Option<String>,
}

/// A permission, as shown by version 2 of the API.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PermissionView {
    /// Identifier of the permission.
    pub uuid: Uuid,
    /// Name of a credential, or all credentials below a path: `/team/*`.
    pub path: String,
    /// Actor that has the permission, such as `uaa-client:ci`.
    pub actor: String,
    /// Allowed operations: `read`, `write`, `delete`, `read_acl`, `write_acl`.
    pub operations: Vec<String>,
}

/// A permission to create or replace (version 2 of the API).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionRequest {
    /// Name of a credential, or all credentials below a path: `/team/*`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub path: String,
    /// Actor that gets the permission, such as `uaa-client:ci`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub actor: String,
    /// Allowed operations: `read`, `write`, `delete`, `read_acl`, `write_acl`.
    #[serde(default, deserialize_with = "lenient::operations")]
    pub operations: Vec<String>,
    /// Accepted and ignored, because clients of CredHub send this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Value>,
}

/// New operations of a permission (version 2 of the API).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OperationsChange {
    /// Allowed operations: `read`, `write`, `delete`, `read_acl`, `write_acl`.
    #[serde(default, deserialize_with = "lenient::operations")]
    pub operations: Vec<String>,
}

/// Permissions of one name or path, to list or to add (version 1 of the API).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NamePermissions<E = PermissionEntry> {
    /// Name of a credential, or all credentials below a path: `/team/*`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub credential_name: String,
    /// Permissions at this name or path, one per actor.
    pub permissions: Option<Vec<E>>,
}

/// The permission of one actor (version 1 of the API).
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PermissionEntry {
    /// Actor that has the permission, such as `uaa-client:ci`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub actor: String,
    /// Name or path of the permission; only in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Allowed operations: `read`, `write`, `delete`, `read_acl`, `write_acl`.
    #[serde(default, deserialize_with = "lenient::operations")]
    pub operations: Vec<String>,
}
