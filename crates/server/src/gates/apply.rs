//! Applies changes to gates: the profiles, roles, issuers, targets and policies that decide whether issuance requires approval.

use authority::profile::ProfileError;
use issuers::NewIssuer;

use super::change::GateChange;
use super::document::read_target;
use super::parts::{Gates, component_not_running};
use crate::access::admin::{self, CheckedChange};
use crate::problem::Problem;

impl Gates {
    /// Applies a change of a gate on behalf of `actor`. Every write of a gate calls this function.
    pub(super) async fn apply(&self, change: &GateChange, actor: &str) -> Result<(), Problem> {
        match change {
            GateChange::PutProfile { .. } | GateChange::DeleteProfile { .. } => {
                self.apply_profile(change, actor).await
            }
            GateChange::CreateIssuer { .. }
            | GateChange::UpdateIssuer { .. }
            | GateChange::DeleteIssuer { .. } => self.apply_issuer(change, actor).await,
            GateChange::UpdateTarget { id, revision, name, agent, target } => {
                let agents = self.agents.as_ref().ok_or_else(component_not_running)?;
                let new = read_target(name, *agent, target)?;
                agents.update_target(*id, *revision, new, actor).await?;
                Ok(())
            }
            GateChange::DeleteTarget { id } => {
                let agents = self.agents.as_ref().ok_or_else(component_not_running)?;
                Ok(agents.delete_target(*id, actor).await?)
            }
            GateChange::PutPolicy { name, policy, revision } => {
                let lifecycle = self.lifecycle.as_ref().ok_or_else(component_not_running)?;
                lifecycle.put_policy(name, policy, *revision, actor).await?;
                Ok(())
            }
            GateChange::DeletePolicy { name } => {
                let lifecycle = self.lifecycle.as_ref().ok_or_else(component_not_running)?;
                Ok(lifecycle.delete_policy(name, actor).await?)
            }
            GateChange::UpdateCertificate { id, revision, change } => {
                let lifecycle = self.lifecycle.as_ref().ok_or_else(component_not_running)?;
                lifecycle.update_approved(*id, *revision, change, actor).await?;
                Ok(())
            }
            GateChange::Access { change, details } => {
                let prepared = CheckedChange { change: change.clone(), details: details.clone() };
                admin::make(&self.access, self.logins, actor, prepared).await
            }
        }
    }

    async fn apply_profile(&self, change: &GateChange, actor: &str) -> Result<(), Problem> {
        let authority = self.authority.as_ref().ok_or_else(component_not_running)?;
        match change {
            GateChange::PutProfile { profile, revision } => {
                let put = authority.put_profile((**profile).clone(), Some(*revision), actor).await;
                match put {
                    Ok(_) => Ok(()),
                    Err(ProfileError::Stale(name)) if *revision == 0 => {
                        Err(Problem::conflict(format_args!("the profile {name} already exists")))
                    }
                    Err(error) => Err(error.into()),
                }
            }
            GateChange::DeleteProfile { name, revision } => {
                Ok(authority.delete_profile(name, Some(*revision), actor).await?)
            }
            _ => Err(Problem::internal("this is not a change of a profile")),
        }
    }

    async fn apply_issuer(&self, change: &GateChange, actor: &str) -> Result<(), Problem> {
        let issuers = self.issuers.as_ref().ok_or_else(component_not_running)?;
        match change {
            GateChange::CreateIssuer { name, config, enabled } => {
                let new = NewIssuer { name: name.clone(), config: config.clone(), enabled: *enabled };
                issuers.create(new, actor).await?;
            }
            GateChange::UpdateIssuer { id, revision, name, config, enabled } => {
                let new = NewIssuer { name: name.clone(), config: config.clone(), enabled: *enabled };
                issuers.update(*id, *revision, new, actor).await?;
            }
            GateChange::DeleteIssuer { id } => {
                if !issuers.delete(*id, actor).await? {
                    return Err(Problem::not_found(format_args!("issuer {id}")));
                }
            }
            _ => return Err(Problem::internal("this is not a change of an issuer")),
        }
        Ok(())
    }
}
