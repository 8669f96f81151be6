//! Decides which changes require approval: changes to objects on which a profile with required approval depends.

use api::access::Grant;
use authority::Authority;
use authority::profile::{Profile, StoredProfile, profiles_requiring_approval};
use authority::tree::CaError;
use store::IdentitySettings;

use super::change::GateChange;
use super::parts::{Gates, component_not_running};
use crate::access::admin::Change;
use crate::access::{AccessControl, Caller, Granted, Permission, Permissions, Scope, grants_at_most};
use crate::problem::Problem;

/// The profiles whose approval rule applies to a change.
pub(super) struct Guard {
    /// Names of the profiles. Empty when the change affects all of them.
    pub(super) profiles: Vec<String>,
    /// Number of required approvals.
    pub(super) needed: u32,
}

/// Returns whether the permission concerns certificates of a profile, approval, or a gate. A grant of such a permission over a
/// profile with required approval requires approval.
const fn is_gated_permission(permission: Permission) -> bool {
    match permission {
        Permission::CertificateRequest
        | Permission::CertificateManage
        | Permission::CertificateRenew
        | Permission::CertificateRevoke
        | Permission::CertificateExport
        | Permission::ProfileManage
        | Permission::CaManage
        | Permission::IssuerManage
        | Permission::PolicyManage
        | Permission::ApprovalDecide
        | Permission::TargetManage
        | Permission::ProtocolManage
        | Permission::KeyRotate
        | Permission::AccessManage => true,
        Permission::CertificateRead
        | Permission::ProfileRead
        | Permission::CaRead
        | Permission::IssuerRead
        | Permission::PolicyRead
        | Permission::PeopleRead
        | Permission::PeopleManage
        | Permission::ApprovalRead
        | Permission::JobRead
        | Permission::JobManage
        | Permission::AgentRead
        | Permission::AgentManage
        | Permission::AgentEnroll
        | Permission::AgentWork
        | Permission::NodeRead
        | Permission::NodeManage
        | Permission::NodeEnroll
        | Permission::NodeWork
        | Permission::KeyPolicyRead
        | Permission::KeyPolicyManage
        | Permission::KeySeal
        | Permission::TargetRead
        | Permission::AlertRead
        | Permission::AlertManage
        | Permission::ProtocolRead
        | Permission::InventoryRead
        | Permission::InventoryManage
        | Permission::KeyBlock
        | Permission::CredentialManage
        | Permission::DatabaseManage
        | Permission::ProxyRead
        | Permission::ProxyDecide
        | Permission::EventRead
        | Permission::MetricsRead
        | Permission::AuditRead
        | Permission::AuditVerify
        | Permission::AccessRead => false,
    }
}

/// Returns whether a grant has a gated permission and can apply to the profile. A scope that names no profile can apply to every
/// profile.
fn affects_profile(granted: &Granted, profile: &str) -> bool {
    let other = granted.scope.bounds().iter().any(|bound| match bound {
        Scope::Profile(name) => name != profile,
        Scope::Any
        | Scope::Issuer(_)
        | Scope::Team(_)
        | Scope::Name(_)
        | Scope::Target(_)
        | Scope::Path(_)
        | Scope::Every(_) => false,
    });
    !other && granted.permissions.iter().any(is_gated_permission)
}

fn affected_profiles(granted: &[Granted], guarded: &[StoredProfile]) -> Vec<String> {
    let reached = |name: &&String| granted.iter().any(|one| affects_profile(one, name));
    guarded.iter().map(|(name, _)| name).filter(reached).cloned().collect()
}

impl Gates {
    /// Returns the profiles whose approval rule applies to the change; `None` when no approval is required.
    pub(super) async fn guard(
        &self,
        caller: &Caller,
        change: &GateChange,
    ) -> Result<Option<(Authority, Guard)>, Problem> {
        let guarded = profiles_requiring_approval(self.access.store()).await?;
        if let GateChange::UpdateCertificate { id, change, .. } = change {
            return self.of_certificate(*id, change, &guarded).await;
        }
        let everywhere = self.is_approval_policy_change(change).await?;
        let profiles = match change {
            _ if everywhere => Vec::new(),
            _ if guarded.is_empty() => return Ok(None),
            GateChange::PutProfile { profile, .. } => self.of_profile(profile, &guarded).await?,
            GateChange::DeleteProfile { name, .. } => named(name, &guarded),
            GateChange::CreateIssuer { name, .. } => {
                self.of_issuer(std::slice::from_ref(name), &guarded).await?
            }
            GateChange::UpdateIssuer { id, name, .. } => {
                let before = self.issuer_name(*id).await?;
                self.of_issuer(&[vec![name.clone()], before].concat(), &guarded).await?
            }
            GateChange::DeleteIssuer { id } => {
                let before = self.issuer_name(*id).await?;
                self.of_issuer(&before, &guarded).await?
            }
            GateChange::UpdateTarget { id, .. } | GateChange::DeleteTarget { id } => match &self.lifecycle {
                Some(lifecycle) => lifecycle.profiles_of_target(names(&guarded), *id).await?,
                None => names(&guarded),
            },
            // A policy without required approval affects no gate.
            GateChange::PutPolicy { .. } | GateChange::DeletePolicy { .. } => return Ok(None),
            // Handled above.
            GateChange::UpdateCertificate { .. } => return Ok(None),
            GateChange::Access { change, .. } => {
                affected_profiles(&self.grants_of_change(caller, change).await?, &guarded)
            }
        };
        if profiles.is_empty() && !everywhere {
            return Ok(None);
        }
        self.guard_of_profiles(profiles, &guarded)
    }

    /// Returns the guard of these profiles. An empty list means all profiles, with one required approval.
    fn guard_of_profiles(
        &self,
        profiles: Vec<String>,
        guarded: &[StoredProfile],
    ) -> Result<Option<(Authority, Guard)>, Problem> {
        let approvals = |name: &String| {
            let found = guarded.iter().find(|(guarded, _)| guarded == name);
            found.and_then(|(_, profile)| profile.as_ref()).map_or(1, |profile| profile.approvals)
        };
        let needed = profiles.iter().map(approvals).max().unwrap_or(1);
        let authority = self.authority.clone().ok_or_else(component_not_running)?;
        Ok(Some((authority, Guard { profiles, needed })))
    }

    /// Returns the guard of a change of a certificate: the guard of its profile, or of all profiles if a policy requires the approval.
    async fn of_certificate(
        &self,
        id: uuid::Uuid,
        change: &lifecycle::managed::CertificateChange,
        guarded: &[StoredProfile],
    ) -> Result<Option<(Authority, Guard)>, Problem> {
        let lifecycle = self.lifecycle.as_ref().ok_or_else(component_not_running)?;
        let preview = lifecycle.preview_change(id, change).await?;
        if !preview.lifts_approval {
            return Ok(None);
        }
        self.guard_of_profiles(preview.profile.into_iter().collect(), guarded)
    }

    /// Returns whether the change is of a policy that requires approval. Such a policy applies to every profile.
    async fn is_approval_policy_change(&self, change: &GateChange) -> Result<bool, Problem> {
        let (GateChange::PutPolicy { name, .. } | GateChange::DeletePolicy { name }) = change else {
            return Ok(false);
        };
        let before = self.document(&format!("policy/{name}")).await?;
        Ok(before.is_some_and(|before| before.value["requires_approval"] == true))
    }

    async fn of_profile(&self, profile: &Profile, guarded: &[StoredProfile]) -> Result<Vec<String>, Problem> {
        let own = named(&profile.name, guarded);
        if !own.is_empty() {
            return Ok(own);
        }
        let before = self.document(&format!("profile/{}", profile.name)).await?;
        let before = before.and_then(|before| serde_json::from_value::<Profile>(before.value).ok());
        // A profile whose CA does not exist issued nothing before.
        let before = match before {
            Some(before) => self.with_ca_key(&before).await?,
            None => None,
        };
        let any_ca = |profile: &Profile| Profile { ca: None, ..profile.clone() };
        let profile = self.with_ca_key(profile).await?.unwrap_or_else(|| any_ca(profile));
        let mut evaded = Vec::new();
        for (name, one) in guarded {
            let bypasses = match one {
                Some(one) => {
                    let one = self.with_ca_key(one).await?.unwrap_or_else(|| any_ca(one));
                    profile.bypasses_approval(before.as_ref(), &one)
                }
                None => true,
            };
            if bypasses {
                evaded.push(name.clone());
            }
        }
        Ok(evaded)
    }

    /// Returns the profile with the key of its CA in place of the CA's name or ID; `None` if the CA does not exist. Profiles can
    /// be compared in this form, because a CA has several names: its ID, its name, and the IDs and names of its renewed certificates.
    async fn with_ca_key(&self, profile: &Profile) -> Result<Option<Profile>, Problem> {
        let (Some(ca), Some(authority)) = (&profile.ca, &self.authority) else {
            return Ok(Some(profile.clone()));
        };
        match authority.ca(ca).await {
            Ok(found) => {
                let ca = Some(found.certificate.public_key.spki_sha256.to_string());
                Ok(Some(Profile { ca, ..profile.clone() }))
            }
            Err(CaError::Unknown(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn issuer_name(&self, id: uuid::Uuid) -> Result<Vec<String>, Problem> {
        let Some(issuers) = &self.issuers else { return Ok(Vec::new()) };
        Ok(issuers.find(id).await?.map(|found| found.row.name).into_iter().collect())
    }

    async fn of_issuer(&self, issuers: &[String], guarded: &[StoredProfile]) -> Result<Vec<String>, Problem> {
        // Without managed certificates, the profiles of the issuer are unknown.
        let Some(lifecycle) = &self.lifecycle else { return Ok(names(guarded)) };
        let mut profiles = Vec::new();
        for issuer in issuers {
            profiles.extend(lifecycle.profiles_of_issuer(names(guarded), issuer).await?);
        }
        profiles.sort();
        profiles.dedup();
        Ok(profiles)
    }

    /// Returns the permissions that a change of access grants. A change that only revokes grants none.
    async fn grants_of_change(&self, caller: &Caller, change: &Change) -> Result<Vec<Granted>, Problem> {
        match change {
            Change::Insert(new) => granted(&self.access, &new.settings).await,
            Change::Update { settings, .. } if settings.enabled => granted(&self.access, settings).await,
            // A new secret for the caller's own identity grants nothing.
            Change::Rekey { id, .. } if *id == caller.id() => Ok(Vec::new()),
            Change::Rekey { id, .. } => {
                let found =
                    store::Access::of(self.access.store()).identity(store::IdentityKind::Token, *id).await?;
                match found {
                    Some(token) => parse_granted(&self.access, &token.grants).await,
                    None => Ok(Vec::new()),
                }
            }
            // Grants nothing, because sign-in still requires the user's password.
            Change::RemoveSecurityKey { .. } => Ok(Vec::new()),
            // A caller who sets a user's password can sign in as that user. The caller's own password grants nothing.
            Change::SetPassword(new) if new.identity == caller.id() => Ok(Vec::new()),
            Change::SetPassword(new) => {
                let found = store::Access::of(self.access.store());
                match found.identity(store::IdentityKind::User, new.identity).await? {
                    Some(user) => parse_granted(&self.access, &user.grants).await,
                    None => Ok(Vec::new()),
                }
            }
            Change::PutRole(role) => {
                let names: Vec<Permission> =
                    serde_json::from_str(&role.permissions).map_err(Problem::internal)?;
                Ok(vec![Granted { permissions: Permissions::of(&names), scope: Scope::Any }])
            }
            Change::Update { .. }
            | Change::Delete { .. }
            | Change::EndSessions { .. }
            | Change::DeleteRole { .. } => Ok(Vec::new()),
        }
    }
}

async fn granted(access: &AccessControl, settings: &IdentitySettings) -> Result<Vec<Granted>, Problem> {
    parse_granted(access, &settings.grants).await
}

async fn parse_granted(access: &AccessControl, grants: &str) -> Result<Vec<Granted>, Problem> {
    let grants: Vec<Grant> = serde_json::from_str(grants).map_err(Problem::internal)?;
    let roles = access.roles().await?;
    Ok(grants.iter().map(|grant| grants_at_most(grant, &roles)).collect())
}

fn names(guarded: &[StoredProfile]) -> Vec<String> {
    guarded.iter().map(|(name, _)| name.clone()).collect()
}

fn named(name: &str, guarded: &[StoredProfile]) -> Vec<String> {
    guarded.iter().filter(|(guarded, _)| guarded == name).map(|(name, _)| name.clone()).collect()
}
