//! Changes of gates: of the profiles, policies, roles, identities, issuers and targets that decide whether issuance requires
//! approval.

use authority::profile::Profile;
use lifecycle::managed::CertificateChange;
use lifecycle::policy::Policy;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::access::admin::{Change, CheckedChange};

/// A write of a gate, with all data that is needed to apply it later. A pending write is stored encrypted.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum GateChange {
    /// Replaces the profile of this revision; 0 creates a profile.
    PutProfile {
        profile: Box<Profile>,
        revision: i64,
    },
    DeleteProfile {
        name: String,
        revision: i64,
    },
    CreateIssuer {
        name: String,
        config: Value,
        enabled: bool,
    },
    UpdateIssuer {
        id: Uuid,
        revision: i64,
        name: String,
        config: Value,
        enabled: bool,
    },
    DeleteIssuer {
        id: Uuid,
    },
    UpdateTarget {
        id: Uuid,
        revision: i64,
        name: String,
        agent: Uuid,
        target: Value,
    },
    DeleteTarget {
        id: Uuid,
    },
    /// Replaces the policy of this revision; `None` creates a policy.
    PutPolicy {
        name: String,
        policy: Box<Policy>,
        revision: Option<i64>,
    },
    DeletePolicy {
        name: String,
    },
    /// Changes the settings of a managed certificate so that it no longer requires approval.
    UpdateCertificate {
        id: Uuid,
        revision: i64,
        change: Box<CertificateChange>,
    },
    /// Changes a role, or an identity and its grants.
    Access {
        change: Change,
        details: Value,
    },
}

impl From<CheckedChange> for GateChange {
    fn from(prepared: CheckedChange) -> Self {
        Self::Access { change: prepared.change, details: prepared.details }
    }
}

impl GateChange {
    /// Returns the action for the audit log.
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
            Self::UpdateCertificate { .. } => "certificate.update",
            Self::Access { change, .. } => change.action(),
        }
    }

    /// Returns the name of the changed object.
    pub(crate) fn object(&self) -> String {
        match self {
            Self::PutProfile { profile, .. } => format!("profile/{}", profile.name),
            Self::DeleteProfile { name, .. } => format!("profile/{name}"),
            Self::CreateIssuer { name, .. } => format!("issuer-name/{name}"),
            Self::UpdateIssuer { id, .. } | Self::DeleteIssuer { id } => format!("issuer/{id}"),
            Self::UpdateTarget { id, .. } | Self::DeleteTarget { id } => format!("target/{id}"),
            Self::PutPolicy { name, .. } | Self::DeletePolicy { name } => format!("policy/{name}"),
            Self::UpdateCertificate { id, .. } => format!("certificate/{id}"),
            Self::Access { change, .. } => change.resource(),
        }
    }
}
