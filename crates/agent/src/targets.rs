//! Targets as the server stores them, with sealed passwords.

use futures_util::FutureExt;
use keys::Context;
use serde_json::json;
use store::{Cursor, Page};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::deploy::Target;
use crate::directory::{AgentError, Agents, check_name};
use crate::tables;
use crate::tables::{DeploymentRow, SEALED_TARGETS, TargetRow, TargetSettings};
use crate::work::{AssignedTarget, TARGETS_MAX};

/// Settings of a target to create or change.
#[derive(Clone, Debug)]
pub struct NewTarget {
    /// Unique name.
    pub name: String,
    /// Id of the agent that deploys to the target.
    pub agent: Uuid,
    /// Configuration of the target.
    pub target: Target,
}

/// A target without its passwords.
#[derive(Clone, Debug)]
pub struct TargetView {
    /// Row of the target in the database.
    pub row: TargetRow,
    /// Configuration of the target, with passwords redacted.
    pub target: Target,
}

impl Agents {
    /// Returns the target with this id, without passwords.
    ///
    /// # Errors
    /// [`AgentError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn target(&self, id: Uuid) -> Result<TargetView, AgentError> {
        view(self.target_row(id).await?)
    }

    async fn target_row(&self, id: Uuid) -> Result<TargetRow, AgentError> {
        tables::Agents::of(self.store()).target(id).await?.ok_or(AgentError::NotFound("target"))
    }

    /// Lists the targets of one agent or of all agents, sorted by name.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn targets(
        &self,
        agent: Option<Uuid>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<TargetView>, AgentError> {
        let page = tables::Agents::of(self.store()).targets(agent, after, limit).await?;
        let rows: Result<Vec<_>, _> = page.rows.into_iter().map(view).collect();
        Ok(Page { rows: rows?, next: page.next })
    }

    /// Returns all targets of an agent, without passwords; at most [`TARGETS_MAX`].
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn targets_of_agent(&self, agent: Uuid) -> Result<Vec<AssignedTarget>, AgentError> {
        let page = self.targets(Some(agent), None, TARGETS_MAX).await?;
        let shown = |view: TargetView| AssignedTarget {
            id: view.row.id,
            name: view.row.settings.name,
            target: view.target,
        };
        Ok(page.rows.into_iter().map(shown).collect())
    }

    /// Decrypts the whole target, with its passwords. Only the target's own agent may receive the result.
    ///
    /// # Errors
    /// [`AgentError::Sealed`].
    pub fn open_target(&self, row: &TargetRow) -> Result<Target, AgentError> {
        let Some(sealed) = &row.settings.secrets else { return read(&row.settings.config) };
        let context = context(&row.id);
        let opened = self
            .parts()
            .keystore
            .keyring()
            .open_sealed(&context, sealed)
            .map_err(|error| AgentError::Sealed(error.to_string()))?;
        serde_json::from_slice(&opened).map_err(|error| AgentError::Sealed(error.to_string()))
    }

    /// Creates a target of an agent. Stores its passwords sealed.
    ///
    /// # Errors
    /// [`AgentError`].
    #[crate::boxed]
    pub async fn create_target(&self, new: NewTarget, actor: &str) -> Result<TargetView, AgentError> {
        let id = Uuid::now_v7();
        let settings = self.settings(id, &new).await?;
        let details = json!({"name": new.name, "agent": new.agent, "type": new.target.kind()});
        let (at, event) =
            (self.now_us(), self.event(actor, "target.create", format!("target/{id}"), details));
        let done = self
            .store()
            .write("target_create", move |tx| {
                async move {
                    let done = tables::insert_target(tx, id, &settings, at).await?;
                    store::audit_if(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        if done { self.target(id).await } else { Err(AgentError::NameTaken(new.name)) }
    }

    /// Changes a target. If `new` contains a redacted password, the stored password is kept, and the agent must stay the same.
    ///
    /// # Errors
    /// [`AgentError`].
    #[crate::boxed]
    pub async fn update_target(
        &self,
        id: Uuid,
        revision: i64,
        mut new: NewTarget,
        actor: &str,
    ) -> Result<TargetView, AgentError> {
        let before = self.target_row(id).await?;
        if new.target.is_password_redacted() {
            if before.settings.agent != new.agent {
                let why = "the agent changed, so the password would be sent to another host: give the password again";
                return Err(AgentError::Invalid(why.to_owned()));
            }
            let stored_password = self.open_target(&before)?.password().cloned();
            let stored_password = stored_password.ok_or_else(|| {
                AgentError::Invalid("password is required: the target has no stored password".to_owned())
            })?;
            new.target.set_password(stored_password);
        }
        let settings = self.settings(id, &new).await?;
        let details = json!({"name": new.name, "agent": new.agent, "type": new.target.kind()});
        let (at, event) =
            (self.now_us(), self.event(actor, "target.update", format!("target/{id}"), details));
        let done = self
            .store()
            .write("target_update", move |tx| {
                async move {
                    let done = tables::update_target(tx, id, revision, &settings, at).await?;
                    store::audit_if(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        if done {
            return self.target(id).await;
        }
        let other = tables::Agents::of(self.store()).target_named(&new.name).await?;
        let taken = other.is_some_and(|other| other.id != id);
        Err(if taken { AgentError::NameTaken(new.name) } else { AgentError::Changed })
    }

    /// Deletes a target. The files on its host are kept.
    ///
    /// # Errors
    /// [`AgentError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn delete_target(&self, id: Uuid, actor: &str) -> Result<(), AgentError> {
        let event = self.event(actor, "target.delete", format!("target/{id}"), json!({}));
        let done = self
            .store()
            .write("target_delete", move |tx| {
                async move {
                    let done = tables::delete_target(tx, id).await?;
                    store::audit_if(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        if done { Ok(()) } else { Err(AgentError::NotFound("target")) }
    }

    /// Lists deployments to a target, newest first.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn deployments_of_target(
        &self,
        target: Uuid,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<DeploymentRow>, AgentError> {
        Ok(tables::Agents::of(self.store()).deployments_of_target(target, after, limit).await?)
    }

    /// Returns a page of deployments, newest first.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn deployments(
        &self,
        filter: &tables::DeploymentFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<DeploymentRow>, AgentError> {
        Ok(tables::Agents::of(self.store()).deployments_page(filter, after, limit).await?)
    }

    async fn settings(&self, id: Uuid, new: &NewTarget) -> Result<TargetSettings, AgentError> {
        check_name(&new.name)?;
        new.target.check().map_err(|error| AgentError::Invalid(error.to_string()))?;
        if self.agent(new.agent).await?.retired_at_us.is_some() {
            return Err(AgentError::Retired);
        }
        let invalid = |error: serde_json::Error| AgentError::Invalid(error.to_string());
        let config = serde_json::to_string(&new.target.redacted()).map_err(invalid)?;
        let secrets = if new.target.has_password() {
            let whole = Zeroizing::new(serde_json::to_vec(&new.target).map_err(invalid)?);
            Some(self.parts().keystore.keyring().seal(&context(&id), &whole))
        } else {
            None
        };
        let kind = new.target.kind().to_owned();
        Ok(TargetSettings { name: new.name.clone(), agent: new.agent, kind, config, secrets })
    }
}

fn context(id: &Uuid) -> Context<'_> {
    Context { table: SEALED_TARGETS.table, row: id.as_bytes(), column: SEALED_TARGETS.column }
}

fn view(row: TargetRow) -> Result<TargetView, AgentError> {
    let target = read(&row.settings.config)?;
    Ok(TargetView { row, target })
}

fn read(config: &str) -> Result<Target, AgentError> {
    serde_json::from_str(config)
        .map_err(|error| AgentError::Invalid(format!("the stored target cannot be parsed: {error}")))
}
