//! Permissions: which actor may do which operation on which path.

use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, Cursor, Page};
use uuid::Uuid;

use crate::name::PermissionPath;
use crate::tables;
use crate::tables::{
    CredentialOperation, PermissionRow, PermissionSettings, Requester, delete_permission, insert_permission,
    update_permission,
};
use crate::{CredentialError, Credentials, Name};

/// Maximum permissions of one path in a listing.
const AT_ONE_PATH_MAX: usize = 10_000;

/// Maximum characters of an actor.
const ACTOR_CHARS_MAX: usize = 255;

/// An operation on credentials that a permission allows, such as read or write.
pub type Operation = CredentialOperation;

/// A set of operations that a permission allows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Operations(u8);

const NAMES: [(Operation, &str); 5] = [
    (Operation::Read, "read"),
    (Operation::Write, "write"),
    (Operation::Delete, "delete"),
    (Operation::ReadAcl, "read_acl"),
    (Operation::WriteAcl, "write_acl"),
];

const BAD_OPERATION: &str = "The provided operation is not supported. Valid values include read, write, delete, read_acl, and write_acl.";
const NO_OPERATION: &str =
    "At least one operation must be provided. Please validate your input and retry your request.";
const NO_ACTOR: &str = "You must specify an actor. Please validate your input and retry your request.";
const PERMISSION_MISMATCH: &str = "The permission guid does not match the provided actor and path.";

impl Operations {
    /// Parses the names of operations; requires at least one.
    ///
    /// # Errors
    /// [`CredentialError::Bad`] for an unknown name, or none.
    pub fn parse<T: AsRef<str>>(names: &[T]) -> Result<Self, CredentialError> {
        let mut bits = 0;
        for name in names {
            let found = NAMES.iter().find(|(_, known)| *known == name.as_ref());
            bits |= found.ok_or_else(|| CredentialError::bad(BAD_OPERATION))?.0 as u8;
        }
        if bits == 0 { Err(CredentialError::bad(NO_OPERATION)) } else { Ok(Self(bits)) }
    }

    /// Returns a set with one operation.
    #[must_use]
    pub fn of(operation: Operation) -> Self {
        Self(operation as u8)
    }

    /// Returns the operation, if the set has exactly one.
    #[must_use]
    pub fn only(self) -> Option<Operation> {
        NAMES.iter().map(|(operation, _)| *operation).find(|operation| *operation as u8 == self.0)
    }

    /// Returns the names of the operations, always in the same order.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        NAMES.iter().filter(|(operation, _)| self.0 & *operation as u8 != 0).map(|(_, name)| *name).collect()
    }
}

/// A permission of an actor to perform operations on a name, or on all names below a path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Permission {
    /// Id of the permission, assigned when it is granted.
    pub id: Uuid,
    /// The actor that has the permission.
    pub actor: String,
    /// The path, as written.
    pub path: String,
    /// Operations that the permission allows.
    pub operations: Operations,
}

impl From<PermissionRow> for Permission {
    fn from(row: PermissionRow) -> Self {
        let PermissionSettings { actor, path, operations, .. } = row.settings;
        Self { id: row.id, actor, path, operations: Operations(operations) }
    }
}

/// Management of permissions.
impl Credentials {
    /// Grants operations on a path to an actor.
    ///
    /// # Errors
    /// [`CredentialError::PermissionExists`] when the actor has a permission for the path; [`CredentialError::NoPermission`] when
    /// the caller is not permitted to change permissions there; [`CredentialError::OwnPermission`].
    #[crate::boxed]
    pub async fn grant(
        &self,
        requester: &Requester,
        actor: &str,
        path: &PermissionPath,
        operations: Operations,
    ) -> Result<Permission, CredentialError> {
        check_actor(requester, actor)?;
        self.require_acl(requester, path.key(), Operation::WriteAcl).await?;
        let settings = PermissionSettings {
            actor: actor.to_owned(),
            path: path.as_str().to_owned(),
            path_key: path.key().to_owned(),
            operations: operations.0,
        };
        let row = PermissionRow { id: Uuid::now_v7(), settings };
        let (event, id) = (self.permission_event(requester, "credential.grant", &row), row.id);
        let (settings, at_us, by) = (row.settings.clone(), self.now_us(), requester.actor.clone());
        let created = self.store().write("credential_grant", move |tx| {
            async move {
                let created = insert_permission(tx, id, &settings, (at_us, &by)).await?;
                if created {
                    store::audit(tx, vec![event]).await?;
                }
                Ok(created)
            }
            .boxed()
        });
        if created.await? { Ok(row.into()) } else { Err(CredentialError::PermissionExists) }
    }

    /// Changes the operations of a permission. If `at` is set, fails unless the permission belongs to that actor and path.
    ///
    /// # Errors
    /// See [`Self::grant`]; [`CredentialError::NoPermission`].
    #[crate::boxed]
    pub async fn change_permission(
        &self,
        requester: &Requester,
        id: Uuid,
        at: Option<(&str, &PermissionPath)>,
        operations: Operations,
    ) -> Result<Permission, CredentialError> {
        let mut row = self.permission_row(requester, id, Operation::WriteAcl).await?;
        check_actor(requester, &row.settings.actor)?;
        if at.is_some_and(|(actor, path)| row.settings.actor != actor || row.settings.path_key != path.key())
        {
            return Err(CredentialError::bad(PERMISSION_MISMATCH));
        }
        row.settings.operations = operations.0;
        let event = self.permission_event(requester, "credential.grant", &row);
        let (at_us, by) = (event.at_us, requester.actor.clone());
        let changed = self.store().write("credential_grant_change", move |tx| {
            async move {
                let changed = update_permission(tx, id, operations.0, (at_us, &by)).await?;
                store::audit(tx, vec![event]).await?;
                Ok(changed)
            }
            .boxed()
        });
        if changed.await? { Ok(row.into()) } else { Err(CredentialError::NoPermission) }
    }

    /// Revokes a permission.
    ///
    /// # Errors
    /// See [`Self::change_permission`].
    #[crate::boxed]
    pub async fn revoke_permission(
        &self,
        requester: &Requester,
        id: Uuid,
    ) -> Result<Permission, CredentialError> {
        let row = self.permission_row(requester, id, Operation::WriteAcl).await?;
        check_actor(requester, &row.settings.actor)?;
        let event = self.permission_event(requester, "credential.ungrant", &row);
        let deleted = self.store().write("credential_ungrant", move |tx| {
            async move {
                let deleted = delete_permission(tx, id).await?;
                store::audit(tx, vec![event]).await?;
                Ok(deleted)
            }
            .boxed()
        });
        if deleted.await? { Ok(row.into()) } else { Err(CredentialError::NoPermission) }
    }

    /// Returns a permission by its id.
    ///
    /// # Errors
    /// [`CredentialError::NoPermission`].
    #[crate::boxed]
    pub async fn permission(&self, requester: &Requester, id: Uuid) -> Result<Permission, CredentialError> {
        self.permission_row(requester, id, Operation::ReadAcl).await.map(Into::into)
    }

    /// Returns the permission of an actor for a path.
    ///
    /// # Errors
    /// [`CredentialError::NoPermission`].
    #[crate::boxed]
    pub async fn permission_of(
        &self,
        requester: &Requester,
        actor: &str,
        path: &PermissionPath,
    ) -> Result<Permission, CredentialError> {
        self.require_acl(requester, path.key(), Operation::ReadAcl).await?;
        let row = tables::Credentials::of(self.store()).permission_of(actor, path.key()).await?;
        row.map(Into::into).ok_or(CredentialError::NoPermission)
    }

    /// Lists the permissions for exactly this path.
    ///
    /// # Errors
    /// [`CredentialError::NoPermission`] when the caller is not permitted to see them.
    #[crate::boxed]
    pub async fn permissions_at(
        &self,
        requester: &Requester,
        path: &PermissionPath,
    ) -> Result<Vec<Permission>, CredentialError> {
        if !tables::Credentials::of(self.store()).may(requester, path.key(), Operation::ReadAcl).await? {
            return Err(CredentialError::NotFound);
        }
        let rows = tables::Credentials::of(self.store()).permissions_at(path.key(), AT_ONE_PATH_MAX).await?;
        Ok(rows.into_iter().map(Into::into).collect())
    }

    /// Returns a page of all permissions. The caller needs full access.
    ///
    /// # Errors
    /// [`CredentialError::NoPermission`] for other callers.
    #[crate::boxed]
    pub async fn permissions(
        &self,
        requester: &Requester,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<Permission>, CredentialError> {
        if !requester.full_access {
            return Err(CredentialError::NoPermission);
        }
        let page = tables::Credentials::of(self.store()).permissions(after, limit).await?;
        Ok(Page { rows: page.rows.into_iter().map(Into::into).collect(), next: page.next })
    }

    /// Returns whether the caller may perform an operation on a name, whether or not the name exists.
    ///
    /// # Errors
    /// Errors of the database.
    #[crate::boxed]
    pub async fn may(
        &self,
        requester: &Requester,
        name: &Name,
        operation: Operation,
    ) -> Result<bool, CredentialError> {
        Ok(tables::Credentials::of(self.store()).may(requester, name.key(), operation).await?)
    }

    async fn permission_row(
        &self,
        requester: &Requester,
        id: Uuid,
        operation: Operation,
    ) -> Result<PermissionRow, CredentialError> {
        let row = tables::Credentials::of(self.store())
            .permission(id)
            .await?
            .ok_or(CredentialError::NoPermission)?;
        self.require_acl(requester, &row.settings.path_key, operation).await?;
        Ok(row)
    }

    async fn require_acl(
        &self,
        requester: &Requester,
        path_key: &str,
        operation: Operation,
    ) -> Result<(), CredentialError> {
        let may = tables::Credentials::of(self.store()).may(requester, path_key, operation).await?;
        if may { Ok(()) } else { Err(CredentialError::NoPermission) }
    }

    fn permission_event(
        &self,
        requester: &Requester,
        action: &'static str,
        row: &PermissionRow,
    ) -> AuditEvent {
        let settings = &row.settings;
        AuditEvent {
            at_us: self.now_us(),
            actor: requester.actor.clone(),
            action,
            resource: format!("credential_permission/{}", row.id),
            details: json!({
                "actor": settings.actor,
                "path": settings.path,
                "operations": Operations(settings.operations).names(),
            }),
        }
    }
}

/// Rejects callers that grant permissions to themselves, unless they have full access.
fn check_actor(requester: &Requester, actor: &str) -> Result<(), CredentialError> {
    if actor.is_empty() {
        return Err(CredentialError::bad(NO_ACTOR));
    }
    if actor.chars().count() > ACTOR_CHARS_MAX || actor.chars().any(char::is_control) {
        return Err(CredentialError::bad(
            "An actor can have at most 255 characters and no control characters.",
        ));
    }
    if is_same_actor(actor, &requester.actor) && !requester.full_access {
        return Err(CredentialError::OwnPermission);
    }
    Ok(())
}

/// Returns whether two names denote the same actor. An API token `ci` logs in as the client `uaa-client:ci` and as the user
/// `uaa-user:ci`. A permission of either name is therefore a permission of that API token.
fn is_same_actor(a: &str, b: &str) -> bool {
    let holder = |actor: &str| {
        let name = actor.strip_prefix("uaa-client:").or_else(|| actor.strip_prefix("uaa-user:"));
        name.map(str::to_owned)
    };
    a == b || holder(a).is_some_and(|name| holder(b) == Some(name))
}

#[cfg(test)]
mod tests {
    use super::is_same_actor;

    #[test]
    fn uaa_client_and_uaa_user_of_same_id_are_the_same_actor() {
        for (a, b, same) in [
            ("uaa-client:ci", "uaa-client:ci", true),
            ("uaa-client:ci", "uaa-user:ci", true),
            ("uaa-user:ci", "uaa-client:ci", true),
            ("uaa-client:ci", "uaa-user:cd", false),
            ("uaa-client:ci", "certificate:ci", false),
            ("mtls-app:7", "mtls-app:7", true),
            ("mtls-app:7", "mtls-app:8", false),
        ] {
            assert_eq!(is_same_actor(a, b), same, "{a} {b}");
        }
    }
}
