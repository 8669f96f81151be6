//! Event bodies about credentials.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A credential changed or was deleted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CredentialChange {
    /// Path of the changed or deleted credential.
    pub name: String,
    /// Actor that changed the credential, in the notation of the audit log.
    pub by: String,
    /// The type of the new version; `None` when there is no new version.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The new version's id; `None` when there is no new version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Uuid>,
}

/// The rotation of a due credential failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CredentialRotationFailed {
    /// The credential's path in lower case.
    pub name: String,
    /// Error message of the failed rotation.
    pub error: String,
    /// Time of the next attempt, µs.
    pub again_at_us: i64,
}

/// Leases of a connection cannot be revoked at its database, or the revocation works again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CredentialLeaseRevocation {
    /// Name of the database connection.
    pub name: String,
    /// Error of the last attempt. `None` when all leases were revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The credential that an event is about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CredentialName {
    /// The credential's path in lower case.
    pub name: String,
}
