//! Deleted credentials, and the versions of a name. CredHub has no such endpoints.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::lenient;

/// Credentials that the caller may undelete, latest deletion first: the response of `GET /api/v1/deleted`.
#[derive(Debug, Deserialize, Serialize)]
pub struct Deleted<C = DeletedView> {
    /// Deleted credentials, latest deletion first.
    pub credentials: Vec<C>,
}

/// A deleted credential that can be undeleted until `kept_until`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DeletedView {
    /// Name of the credential, such as `/team/db`.
    pub name: String,
    /// Type of the credential.
    #[serde(rename = "type")]
    pub kind: String,
    /// Deletion time, RFC 3339.
    pub deleted_at: String,
    /// End of the period in which the credential can be undeleted, RFC 3339.
    pub kept_until: String,
}

/// A credential to undelete: `POST /api/v1/undelete`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UndeleteRequest {
    /// Name of the deleted credential, such as `/team/db`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
}

/// A credential that was undeleted.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct UndeletedView {
    /// Name of the credential, such as `/team/db`.
    pub name: String,
    /// Type of the credential.
    #[serde(rename = "type")]
    pub kind: String,
}

/// The versions of a name, newest first: the response of `GET /api/v1/versions`.
#[derive(Debug, Deserialize, Serialize)]
pub struct VersionsView<C = ListedVersion> {
    /// Name of the credential, such as `/team/db`.
    pub name: String,
    /// Type of the credential.
    #[serde(rename = "type")]
    pub kind: String,
    /// Versions of the name, newest first.
    pub versions: Vec<C>,
}

/// A version of a name, without its value.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ListedVersion {
    /// Number of the version, from 1 for each name.
    pub number: u64,
    /// UUID of the version, used in `/api/v1/data/{id}`.
    pub id: Uuid,
    /// Creation time, RFC 3339.
    pub version_created_at: String,
    /// Expiry time of the credential, RFC 3339; absent if it does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Time of deletion or expiry, RFC 3339; absent while the version can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<String>,
    /// End of the period in which the version can be undeleted, RFC 3339; absent while the version can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<String>,
}

/// Versions to change: `POST /api/v1/versions`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct VersionsRequest {
    /// Name of the credential, such as `/team/db`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// Numbers of the versions to change; required.
    #[serde(default, deserialize_with = "lenient::readable")]
    pub versions: Option<Vec<u64>>,
    /// Change to make to the versions; required.
    #[serde(default, deserialize_with = "lenient::readable")]
    pub change: Option<VersionsChange>,
}

/// A change of versions.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionsChange {
    /// Delete the versions. They can be undeleted.
    Delete,
    /// Undelete the versions, so that they can be read again.
    Undelete,
    /// Delete the versions permanently.
    Destroy,
}
