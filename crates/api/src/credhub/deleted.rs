//! Deleted credentials, and the versions of a name: not in CredHub.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::lenient;

/// Credentials that the caller may undelete, the last deleted first: the response of `GET /api/v1/deleted`.
#[derive(Debug, Deserialize, Serialize)]
pub struct Deleted<C = DeletedView> {
    /// The credentials.
    pub credentials: Vec<C>,
}

/// A deleted credential.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct DeletedView {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// When it was deleted, RFC 3339.
    pub deleted_at: String,
    /// Until when it can be undeleted, RFC 3339.
    pub kept_until: String,
}

/// A name to undelete: `POST /api/v1/undelete`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UndeleteRequest {
    /// The name.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
}

/// A credential that was undeleted.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct UndeletedView {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
}

/// The versions of a name, newest first: the response of `GET /api/v1/versions`.
#[derive(Debug, Deserialize, Serialize)]
pub struct VersionsView<C = ListedVersion> {
    /// The name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The versions.
    pub versions: Vec<C>,
}

/// A version in a listing.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct ListedVersion {
    /// Versions of a name are counted from 1.
    pub number: u64,
    /// The version's identity.
    pub id: Uuid,
    /// When it was stored, RFC 3339.
    pub version_created_at: String,
    /// When its time to live ends, RFC 3339; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// When it was deleted or expired, RFC 3339; absent while it can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<String>,
    /// Until when it can be undeleted, RFC 3339; absent while it can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<String>,
}

/// Versions to change: `POST /api/v1/versions`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct VersionsRequest {
    /// The name.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// Numbers of its versions; needed.
    #[serde(default, deserialize_with = "lenient::readable")]
    pub versions: Option<Vec<u64>>,
    /// What to do with them; needed.
    #[serde(default, deserialize_with = "lenient::readable")]
    pub change: Option<VersionsChange>,
}

/// What to do with versions.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionsChange {
    /// Delete them; they can be undeleted.
    Delete,
    /// Undelete them.
    Undelete,
    /// Delete them for good.
    Destroy,
}
