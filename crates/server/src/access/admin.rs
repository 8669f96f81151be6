//! Changes of identities, roles, access credentials and sessions. Each change is checked against the permissions of its caller,
//! audited in its transaction, and effective immediately.

use api::access::Grant;
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{
    AccessChange, AuditEvent, Identity, IdentityKind, IdentitySettings, NewIdentity, NewPassword, RoleChange,
    StoreError, Tx,
};
use uuid::Uuid;

use crate::access::grant;
use crate::access::managers::{self, AccessRemoval};
use crate::access::{AccessControl, Caller, Granted, Permission, Permissions, Scope};
use crate::conditional::IfMatch;
use crate::problem::Problem;

/// Longest name of an identity or role, in bytes.
pub(crate) const NAME_MAX: usize = 128;

/// A change of an identity, its credentials or sessions, or a role.
#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    Insert(Box<NewIdentity>),
    Update { id: Uuid, kind: IdentityKind, revision: i64, settings: IdentitySettings },
    Rekey { id: Uuid, revision: i64, key_hash: [u8; 32], label: String },
    Delete { id: Uuid, kind: IdentityKind, revision: i64 },
    EndSessions { of: Uuid },
    SetPassword(Box<NewPassword>),
    RemoveSecurityKey { of: Uuid, key: Uuid },
    PutRole(RoleChange),
    DeleteRole { name: String, revision: i64 },
}

/// A checked change, and its details for the audit log.
pub(crate) struct CheckedChange {
    pub(crate) change: Change,
    pub(crate) details: Value,
}

impl Change {
    /// Returns the action for the audit log.
    pub(crate) fn action(&self) -> &'static str {
        match self {
            Self::Insert(new) => action(new.kind, Verb::Create),
            Self::Update { kind, .. } => action(*kind, Verb::Update),
            Self::Rekey { .. } => "token.rotate",
            Self::Delete { kind, .. } => action(*kind, Verb::Delete),
            Self::EndSessions { .. } => "session.end",
            Self::SetPassword(_) => "user.password",
            Self::RemoveSecurityKey { .. } => "user.security-key-remove",
            Self::PutRole(_) => "role.put",
            Self::DeleteRole { .. } => "role.delete",
        }
    }

    /// Returns the resource for the audit log.
    pub(crate) fn resource(&self) -> String {
        match self {
            Self::Insert(new) => resource(new.kind, new.id),
            Self::Update { id, kind, .. } | Self::Delete { id, kind, .. } => resource(*kind, *id),
            Self::Rekey { id, .. } => resource(IdentityKind::Token, *id),
            Self::EndSessions { of } | Self::RemoveSecurityKey { of, .. } => {
                resource(IdentityKind::User, *of)
            }
            Self::SetPassword(new) => resource(IdentityKind::User, new.identity),
            Self::PutRole(role) => format!("role/{}", role.name),
            Self::DeleteRole { name, .. } => format!("role/{name}"),
        }
    }

    /// Returns the change as an [`AccessRemoval`], to check that it leaves an identity with `access.manage`. `None` if the change
    /// cannot revoke this permission.
    fn removal(&self) -> Option<AccessRemoval<'_>> {
        match self {
            Self::Update { id, settings, .. } => Some(AccessRemoval::Update(*id, settings)),
            Self::Delete { id, .. } => Some(AccessRemoval::Delete(*id)),
            Self::PutRole(role) => role.revision.map(|_| AccessRemoval::PutRole(role)),
            Self::DeleteRole { name, .. } => Some(AccessRemoval::DeleteRole(name)),
            Self::Insert(_)
            | Self::Rekey { .. }
            | Self::EndSessions { .. }
            | Self::SetPassword(_)
            | Self::RemoveSecurityKey { .. } => None,
        }
    }

    async fn apply(&self, tx: &mut Tx) -> Result<AccessChange, StoreError> {
        match self {
            Self::Insert(new) => store::insert_identity(tx, new).await,
            Self::Update { id, kind, revision, settings } => {
                store::update_identity(tx, *id, *kind, *revision, settings).await
            }
            Self::Rekey { id, revision, key_hash, label } => {
                store::rekey_identity(tx, *id, *revision, *key_hash, label).await
            }
            Self::Delete { id, revision, .. } => store::delete_identity(tx, *id, *revision).await,
            Self::EndSessions { of } => store::sign_out(tx, *of).await.map(|_| AccessChange::Done),
            Self::SetPassword(new) => store::put_password(tx, new).await.map(|()| AccessChange::Done),
            Self::RemoveSecurityKey { of, key } => store::delete_security_key(tx, *of, *key).await,
            Self::PutRole(role) => store::put_role(tx, role).await,
            Self::DeleteRole { name, revision } => store::delete_role(tx, name, *revision).await,
        }
    }
}

/// Makes a change and its audit event in one transaction. The change is effective immediately.
///
/// This function does not check whether the change requires approval: the module `gates` checks this first, and logins need no
/// approval. `logins` tells whether users can sign in through an OIDC issuer.
pub(crate) async fn make(
    access: &AccessControl,
    logins: bool,
    actor: &str,
    prepared: CheckedChange,
) -> Result<(), Problem> {
    let at_us = access.clock().now_us();
    let CheckedChange { change, details } = prepared;
    let (action, resource) = (change.action(), change.resource());
    let event = AuditEvent { at_us, actor: actor.to_owned(), action, resource, details };
    let outcome = access
        .store()
        .write(action, move |tx| {
            async move {
                if let Some(removal) = change.removal()
                    && managers::is_last(tx, removal, logins, at_us).await?
                {
                    return Ok(None);
                }
                let outcome = change.apply(tx).await?;
                if outcome == AccessChange::Done {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(Some(outcome))
            }
            .boxed()
        })
        .await?;
    access.forget();
    match outcome.ok_or_else(managers::last_manager)? {
        AccessChange::Done => Ok(()),
        AccessChange::Taken => Err(Problem::conflict("this name or identifier is already in use")),
        AccessChange::Stale => {
            Err(Problem::precondition_failed("the object was changed or deleted by another request"))
        }
    }
}

/// Rejects a change of permissions that the caller does not hold. Without this check, anyone who may manage access could take
/// over any identity.
pub(crate) async fn check_grants_within_caller(
    access: &AccessControl,
    caller: &Caller,
    grants: &[Grant],
) -> Result<(), Problem> {
    let roles = access.roles().await?;
    for grant in grants {
        if !caller.covers(&grant::required_to_assign(grant, &roles)) {
            let detail =
                format!("the role {} in scope {} exceeds your own permissions", grant.role, grant.scope);
            return Err(Problem::forbidden(detail));
        }
    }
    Ok(())
}

/// Rejects a change or removal of an identity that holds more permissions than the caller. Grants that this version cannot parse
/// count as full access, so that an administrator can store them again or remove the identity.
pub(crate) async fn check_identity_within_caller(
    access: &AccessControl,
    caller: &Caller,
    identity: &Identity,
) -> Result<(), Problem> {
    match grant::stored(identity) {
        Ok(grants) => check_grants_within_caller(access, caller, &grants).await,
        Err(_) if caller.covers(&Granted { permissions: Permissions::all(), scope: Scope::Any }) => Ok(()),
        Err(unreadable) => Err(unreadable.into()),
    }
}

/// Checks grants that `caller` assigns, and returns them as JSON text for the database.
pub(crate) async fn checked_grants(
    access: &AccessControl,
    caller: &Caller,
    grants: &[Grant],
) -> Result<String, Problem> {
    grant::check(grants, access.roles().await?.as_ref())?;
    check_grants_within_caller(access, caller, grants).await?;
    Ok(grant::to_store(grants))
}

/// Trims and checks a name: 1 to [`NAME_MAX`] bytes without control characters.
pub(crate) fn name(text: &str) -> Result<String, Problem> {
    let text = text.trim();
    if text.is_empty() || text.len() > NAME_MAX || text.chars().any(char::is_control) {
        let detail = format!("a name must have 1 to {NAME_MAX} bytes and no control characters");
        return Err(Problem::unprocessable(detail));
    }
    Ok(text.to_owned())
}

/// Rejects a new name of an identity if the name already has permissions for credentials, for example because it was the name of a
/// deleted token. Otherwise anyone who may manage access could read these credentials.
pub(crate) async fn check_credential_permissions(
    access: &AccessControl,
    caller: &Caller,
    kind: IdentityKind,
    name: &str,
) -> Result<(), Problem> {
    if caller.has_permission_everywhere(Permission::CredentialManage) {
        return Ok(());
    }
    let kinds: &[&str] = match kind {
        // A token also logs in as a user: see `routes::credhub::login`.
        IdentityKind::Token => &["uaa-client", "uaa-user", "token"],
        IdentityKind::User => &["user"],
        IdentityKind::Certificate => &["certificate"],
    };
    for kind in kinds {
        let actor = format!("{kind}:{name}");
        if has_credential_permissions(access, &actor).await? {
            return Err(Problem::forbidden(format_args!(
                "{actor} has permissions for credentials: to create an identity with this name, you need credential.manage"
            ))
            .hint("choose another name, or ask an administrator"));
        }
    }
    Ok(())
}

/// Returns whether an actor has permissions in the credential store.
pub(crate) async fn has_credential_permissions(access: &AccessControl, actor: &str) -> Result<bool, Problem> {
    let credentials = credentials::tables::Credentials::of(access.store());
    Ok(!credentials.permissions_fingerprint(actor).await?.is_empty())
}

/// Parses an expiry, which must be in the future.
pub(crate) fn end(access: &AccessControl, text: Option<&str>) -> Result<Option<i64>, Problem> {
    let end = text.map(crate::time::parsed).transpose()?;
    if end.is_some_and(|end| end <= access.clock().now_us()) {
        return Err(Problem::unprocessable("expires_at is in the past"));
    }
    Ok(end)
}

pub(crate) struct NewIdentityValues {
    pub(crate) kind: IdentityKind,
    pub(crate) key_hash: [u8; 32],
    pub(crate) label: String,
    pub(crate) settings: IdentitySettings,
}

/// Returns the grants in identity settings as JSON, for the audit log.
fn grants_json(settings: &IdentitySettings) -> Result<Value, Problem> {
    serde_json::from_str(&settings.grants).map_err(Problem::internal)
}

/// Prepares the creation of an identity.
pub(crate) async fn create(
    access: &AccessControl,
    caller: &Caller,
    new: NewIdentityValues,
) -> Result<CheckedChange, Problem> {
    let NewIdentityValues { kind, key_hash, label, settings } = new;
    check_credential_permissions(access, caller, kind, &settings.name).await?;
    let id = Uuid::now_v7();
    let details = json!({ "name": settings.name, "label": label, "grants": grants_json(&settings)? });
    let stored = NewIdentity {
        id,
        kind,
        key_hash,
        label,
        settings,
        created_at_us: access.clock().now_us(),
        created_by: caller.owner().to_owned(),
    };
    Ok(CheckedChange { change: Change::Insert(Box::new(stored)), details })
}

/// Returns an identity, or a 404 problem.
pub(crate) async fn find(access: &AccessControl, kind: IdentityKind, id: Uuid) -> Result<Identity, Problem> {
    let found = store::Access::of(access.store()).identity(kind, id).await?;
    found.ok_or_else(|| Problem::not_found(format_args!("{kind} {id}")))
}

/// Changes of an identity; `None` keeps a value.
#[derive(Default)]
pub(crate) struct IdentityUpdate {
    pub(crate) name: Option<String>,
    pub(crate) email: Option<Option<String>>,
    pub(crate) grants: Option<Vec<Grant>>,
    pub(crate) enabled: Option<bool>,
    pub(crate) expires_at_us: Option<Option<i64>>,
}

/// Prepares the change of an identity.
pub(crate) async fn update(
    access: &AccessControl,
    caller: &Caller,
    kind: IdentityKind,
    id: Uuid,
    if_match: &IfMatch,
    patch: IdentityUpdate,
) -> Result<CheckedChange, Problem> {
    let before = find(access, kind, id).await?;
    if_match.check(before.revision)?;
    check_identity_within_caller(access, caller, &before).await?;
    let grants = match &patch.grants {
        Some(grants) => checked_grants(access, caller, grants).await?,
        None => {
            grant::stored(&before)?;
            before.grants
        }
    };
    let name = patch.name.as_deref().map_or_else(|| Ok(before.name.clone()), name)?;
    if name != before.name {
        check_credential_permissions(access, caller, kind, &name).await?;
    }
    let settings = IdentitySettings {
        name,
        email: patch.email.unwrap_or(before.email),
        grants,
        enabled: patch.enabled.unwrap_or(before.enabled),
        expires_at_us: patch.expires_at_us.unwrap_or(before.expires_at_us),
    };
    let details = json!({
        "name": settings.name,
        "enabled": settings.enabled,
        "grants": grants_json(&settings)?,
        "expires_at": crate::time::maybe_shown(settings.expires_at_us),
    });
    Ok(CheckedChange { change: Change::Update { id, kind, revision: before.revision, settings }, details })
}

/// Prepares the removal of an identity.
pub(crate) async fn delete(
    access: &AccessControl,
    caller: &Caller,
    kind: IdentityKind,
    id: Uuid,
    if_match: &IfMatch,
) -> Result<CheckedChange, Problem> {
    let before = find(access, kind, id).await?;
    if_match.check(before.revision)?;
    check_identity_within_caller(access, caller, &before).await?;
    let details = json!({ "name": before.name, "label": before.label });
    Ok(CheckedChange { change: Change::Delete { id, kind, revision: before.revision }, details })
}

#[derive(Clone, Copy)]
enum Verb {
    Create,
    Update,
    Delete,
}

fn action(kind: IdentityKind, verb: Verb) -> &'static str {
    match (kind, verb) {
        (IdentityKind::Token, Verb::Create) => "token.create",
        (IdentityKind::Token, Verb::Update) => "token.update",
        (IdentityKind::Token, Verb::Delete) => "token.delete",
        (IdentityKind::User, Verb::Create) => "user.create",
        (IdentityKind::User, Verb::Update) => "user.update",
        (IdentityKind::User, Verb::Delete) => "user.delete",
        (IdentityKind::Certificate, Verb::Create) => "client-certificate.create",
        (IdentityKind::Certificate, Verb::Update) => "client-certificate.update",
        (IdentityKind::Certificate, Verb::Delete) => "client-certificate.delete",
    }
}

/// Returns the resource name for the audit log.
pub(crate) fn resource(kind: IdentityKind, id: Uuid) -> String {
    match kind {
        IdentityKind::Certificate => format!("client-certificate/{id}"),
        other => format!("{other}/{id}"),
    }
}
