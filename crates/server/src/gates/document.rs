//! JSON documents of gates (objects that decide whether issuance requires approval), without secrets. A plan shows the document
//! before and after the change.

use agent::NewTarget;
use authority::profile::ProfileError;
use serde_json::{Value, json};
use store::{Identity, IdentityKind, IdentitySettings};
use uuid::Uuid;

use super::change::GateChange;
use super::parts::{Gates, component_not_running};
use crate::access::admin::Change;
use crate::problem::Problem;
use crate::time;

/// The member that lists the secrets that a request sets. Stored objects do not have it.
const SECRETS_GIVEN: &str = "secrets_given";

/// The current state of a gate.
pub(super) struct Document {
    pub(super) revision: i64,
    pub(super) value: Value,
}

/// Returns whether an object equals the planned one, except for secrets that the plan lists.
pub(super) fn same(value: &Value, planned: &Value) -> bool {
    let mut planned = planned.clone();
    if let Value::Object(members) = &mut planned {
        members.remove(SECRETS_GIVEN);
    }
    *value == planned
}

fn identity(kind: IdentityKind, label: &str, settings: &IdentitySettings) -> Value {
    json!({
        "kind": kind,
        "name": settings.name,
        "label": label,
        "email": settings.email,
        "enabled": settings.enabled,
        "expires_at": time::maybe_shown(settings.expires_at_us),
        "grants": serde_json::from_str::<Value>(&settings.grants).unwrap_or_default(),
    })
}

fn stored(identity_row: Identity) -> Document {
    let settings = IdentitySettings {
        name: identity_row.name,
        email: identity_row.email,
        grants: identity_row.grants,
        enabled: identity_row.enabled,
        expires_at_us: identity_row.expires_at_us,
    };
    let value = identity(identity_row.kind, &identity_row.label, &settings);
    Document { revision: identity_row.revision, value }
}

fn role(description: &str, permissions: &str) -> Value {
    let permissions = serde_json::from_str::<Value>(permissions).unwrap_or_default();
    json!({ "description": description, "permissions": permissions })
}

fn target(name: &str, agent: Uuid, target: Value) -> Value {
    json!({ "name": name, "agent": agent, "target": target })
}

fn issuer(name: &str, enabled: bool, config: Value) -> Value {
    json!({ "name": name, "enabled": enabled, "config": config })
}

fn add_given_secrets(mut value: Value, given: Vec<String>) -> Value {
    if !given.is_empty() {
        value[SECRETS_GIVEN] = given.into();
    }
    value
}

impl Gates {
    /// Returns the current document of a gate (`profile/vip`); `None` if it does not exist.
    pub(super) async fn document(&self, object: &str) -> Result<Option<Document>, Problem> {
        let Some((kind, name)) = object.split_once('/') else { return Ok(None) };
        match kind {
            "profile" => self.profile(name).await,
            "policy" => self.policy(name).await,
            "issuer" => self.issuer(name).await,
            "target" => self.target(name).await,
            "certificate" => self.certificate(name).await,
            "role" => self.role(name).await,
            "token" => self.identity_row(IdentityKind::Token, name).await,
            "user" => self.identity_row(IdentityKind::User, name).await,
            "client-certificate" => self.identity_row(IdentityKind::Certificate, name).await,
            _ => Ok(None),
        }
    }

    async fn profile(&self, name: &str) -> Result<Option<Document>, Problem> {
        let Some(authority) = &self.authority else { return Ok(None) };
        match authority.profile_record(name).await {
            Ok(record) => {
                let value = serde_json::to_value(&*record.profile).map_err(Problem::internal)?;
                Ok(Some(Document { revision: record.revision, value }))
            }
            Err(ProfileError::Unknown(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn policy(&self, name: &str) -> Result<Option<Document>, Problem> {
        let Some(lifecycle) = &self.lifecycle else { return Ok(None) };
        match lifecycle.policy(name).await {
            Ok(record) => {
                let value = serde_json::to_value(&record.policy).map_err(Problem::internal)?;
                Ok(Some(Document { revision: record.revision, value }))
            }
            Err(lifecycle::DataError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn issuer(&self, id: &str) -> Result<Option<Document>, Problem> {
        let (Some(issuers), Ok(id)) = (&self.issuers, id.parse()) else { return Ok(None) };
        Ok(issuers.find(id).await?.map(|found| Document {
            revision: found.row.revision,
            value: issuer(&found.row.name, found.row.enabled, found.config),
        }))
    }

    async fn target(&self, id: &str) -> Result<Option<Document>, Problem> {
        let (Some(agents), Ok(id)) = (&self.agents, id.parse()) else { return Ok(None) };
        match agents.target(id).await {
            Ok(view) => {
                let redacted = serde_json::to_value(&view.target).map_err(Problem::internal)?;
                let settings = view.row.settings;
                let value = target(&settings.name, settings.agent, redacted);
                Ok(Some(Document { revision: view.row.revision, value }))
            }
            Err(agent::AgentError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn certificate(&self, id: &str) -> Result<Option<Document>, Problem> {
        let (Some(lifecycle), Ok(id)) = (&self.lifecycle, id.parse()) else { return Ok(None) };
        match lifecycle.get(id).await {
            Ok(found) => Ok(Some(Document { revision: found.revision, value: found.settings() })),
            Err(lifecycle::DataError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn role(&self, name: &str) -> Result<Option<Document>, Problem> {
        let roles = store::Access::of(self.access.store()).roles().await?;
        Ok(roles.into_iter().find(|stored| stored.name == name).map(|stored| Document {
            revision: stored.revision,
            value: role(&stored.description, &stored.permissions),
        }))
    }

    async fn identity_row(&self, kind: IdentityKind, id: &str) -> Result<Option<Document>, Problem> {
        let Ok(id) = id.parse() else { return Ok(None) };
        Ok(store::Access::of(self.access.store()).identity(kind, id).await?.map(stored))
    }

    /// Returns the document of a gate after a change; `None` when the change deletes it. Rejects a change that could never be
    /// applied.
    pub(super) async fn document_after(
        &self,
        change: &GateChange,
        before: Option<&Document>,
    ) -> Result<Option<Value>, Problem> {
        Ok(match change {
            GateChange::PutProfile { profile, .. } => {
                profile.validate().map_err(Problem::unprocessable)?;
                Some(serde_json::to_value(profile).map_err(Problem::internal)?)
            }
            GateChange::PutPolicy { policy, .. } => {
                policy.check().map_err(Problem::unprocessable)?;
                Some(serde_json::to_value(policy).map_err(Problem::internal)?)
            }
            GateChange::CreateIssuer { name, config, enabled } => {
                Some(self.issuer_document_after(Uuid::now_v7(), name, config, *enabled).await?)
            }
            GateChange::UpdateIssuer { id, name, config, enabled, .. } => {
                Some(self.issuer_document_after(*id, name, config, *enabled).await?)
            }
            GateChange::UpdateTarget { name, agent, target, .. } => {
                Some(target_document_after(name, *agent, target)?)
            }
            GateChange::UpdateCertificate { id, change, .. } => {
                let lifecycle = self.lifecycle.as_ref().ok_or_else(component_not_running)?;
                Some(lifecycle.preview_change(*id, change).await?.settings)
            }
            GateChange::Access { change, .. } => access_document_after(change, before),
            GateChange::DeleteProfile { .. }
            | GateChange::DeleteIssuer { .. }
            | GateChange::DeleteTarget { .. }
            | GateChange::DeletePolicy { .. } => None,
        })
    }

    async fn issuer_document_after(
        &self,
        id: Uuid,
        name: &str,
        config: &Value,
        enabled: bool,
    ) -> Result<Value, Problem> {
        let issuers = self.issuers.as_ref().ok_or_else(component_not_running)?;
        let new = issuers::NewIssuer { name: name.to_owned(), config: config.clone(), enabled };
        let (config, given) = issuers.preview(id, new).await?;
        Ok(add_given_secrets(issuer(name, enabled, config), given))
    }
}

/// Parses the target of a request.
pub(super) fn read_target(name: &str, agent: Uuid, target: &Value) -> Result<NewTarget, Problem> {
    let target = serde_json::from_value(target.clone())
        .map_err(|error| Problem::unprocessable(format_args!("target: {error}")))?;
    Ok(NewTarget { name: name.to_owned(), agent, target })
}

fn target_document_after(name: &str, agent: Uuid, given: &Value) -> Result<Value, Problem> {
    let new = read_target(name, agent, given)?;
    new.target.check().map_err(Problem::unprocessable)?;
    let secrets = new.target.has_password() && !new.target.is_password_redacted();
    let redacted = serde_json::to_value(new.target.redacted()).map_err(Problem::internal)?;
    let given = if secrets { vec!["/target/password".to_owned()] } else { Vec::new() };
    Ok(add_given_secrets(target(name, agent, redacted), given))
}

fn access_document_after(change: &Change, before: Option<&Document>) -> Option<Value> {
    let label = || before.and_then(|before| before.value["label"].as_str()).unwrap_or_default();
    match change {
        Change::Insert(new) => Some(identity(new.kind, &new.label, &new.settings)),
        Change::Update { kind, settings, .. } => Some(identity(*kind, label(), settings)),
        Change::Rekey { label, .. } => {
            let mut value = before.map(|before| before.value.clone()).unwrap_or_default();
            value["label"] = label.as_str().into();
            Some(value)
        }
        Change::SetPassword(_) => {
            let value = before.map(|before| before.value.clone()).unwrap_or_default();
            Some(add_given_secrets(value, vec!["/password".to_owned()]))
        }
        Change::EndSessions { .. } | Change::RemoveSecurityKey { .. } => {
            before.map(|before| before.value.clone())
        }
        Change::PutRole(change) => Some(role(&change.description, &change.permissions)),
        Change::Delete { .. } | Change::DeleteRole { .. } => None,
    }
}
