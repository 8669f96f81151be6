//! The changes of gates.

use authority::profile::Profile;
use lifecycle::policy::Policy;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::access::admin::{Change, Prepared};

/// A write of a gate. It is stored, sealed, when it waits for approval, so it holds all that it needs.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GateChange {
    /// Stores a profile in place of the one of this revision; 0 for a new one.
    PutProfile { profile: Box<Profile>, revision: i64 },
    /// Removes a profile.
    DeleteProfile { name: String, revision: i64 },
    /// Configures an issuer.
    CreateIssuer { name: String, config: Value, enabled: bool },
    /// Changes an issuer.
    UpdateIssuer { id: Uuid, revision: i64, name: String, config: Value, enabled: bool },
    /// Removes an issuer.
    DeleteIssuer { id: Uuid },
    /// Changes a target.
    UpdateTarget { id: Uuid, revision: i64, name: String, agent: Uuid, target: Value },
    /// Removes a target.
    DeleteTarget { id: Uuid },
    /// Stores a policy in place of the one of this revision; `None` for a new one.
    PutPolicy { name: String, policy: Box<Policy>, revision: Option<i64> },
    /// Removes a policy.
    DeletePolicy { name: String },
    /// Changes a role, or an identity and its grants.
    Access { change: Change, details: Value },
}

impl From<Prepared> for GateChange {
    fn from(prepared: Prepared) -> Self {
        Self::Access { change: prepared.change, details: prepared.details }
    }
}

impl GateChange {
    /// The action, as in the audit log.
    pub(crate) fn action(&self) -> &'static str {
        match self {
            Self::PutProfile { .. } => "profile.put",
            Self::DeleteProfile { .. } => "profile.delete",
            Self::CreateIssuer { .. } => "issuer.create",
            Self::UpdateIssuer { .. } => "issuer.update",
            Self::DeleteIssuer { .. } => "issuer.delete",
            Self::UpdateTarget { .. } => "target.update",
            Self::DeleteTarget { .. } => "target.delete",
            Self::PutPolicy { revision: None, .. } => "policy.create",
            Self::PutPolicy { .. } => "policy.update",
            Self::DeletePolicy { .. } => "policy.delete",
            Self::Access { change, .. } => change.action(),
        }
    }

    /// The object of the change.
    pub(crate) fn object(&self) -> String {
        match self {
            Self::PutProfile { profile, .. } => format!("profile/{}", profile.name),
            Self::DeleteProfile { name, .. } => format!("profile/{name}"),
            Self::CreateIssuer { name, .. } => format!("issuer-name/{name}"),
            Self::UpdateIssuer { id, .. } | Self::DeleteIssuer { id } => format!("issuer/{id}"),
            Self::UpdateTarget { id, .. } | Self::DeleteTarget { id } => format!("target/{id}"),
            Self::PutPolicy { name, .. } | Self::DeletePolicy { name } => format!("policy/{name}"),
            Self::Access { change, .. } => change.resource(),
        }
    }
}
