//! Reports of the actors that have access to a name, and of changes to that access.

use serde_json::Value as Json;
use store::{Cursor, Page};

use crate::name::PermissionPath;
use crate::rotation::map_cursor_error;
use crate::tables;
use crate::tables::{AccessChangeRow, AccessDifference, AccessRow, Requester};
use crate::{CredentialError, Credentials, Operation, Operations};

/// A change in an actor's access: an operation was granted to the actor, or revoked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessChange {
    /// Time of the change, µs since 1970-01-01 UTC.
    pub at_us: i64,
    /// Actor that made the change.
    pub by: String,
    /// Actor whose access changed.
    pub actor: String,
    /// The path of the permission.
    pub path: String,
    /// Whether the operation was granted. False: it was revoked.
    pub gained: bool,
}

impl Credentials {
    /// Lists the actors that may perform an operation on a name or path, sorted by actor. An actor has access by a permission, or
    /// by a role with full access. `roles` contains the names of these roles, and the prefix of the actors of API tokens.
    ///
    /// # Errors
    /// [`CredentialError::NotFound`] when the caller is not permitted to see permissions there; [`CredentialError::Bad`] for a
    /// cursor of another listing.
    #[crate::boxed]
    pub async fn access(
        &self,
        requester: &Requester,
        (path, operation): (&PermissionPath, Operation),
        roles: (&[String], &str),
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AccessRow>, CredentialError> {
        self.require_read_acl(requester, path).await?;
        let what = (path.key(), operation);
        tables::Credentials::of(self.store())
            .access(what, roles, self.now_us(), after, limit)
            .await
            .map_err(map_cursor_error)
    }

    /// Lists the actors that may perform an operation on one of two names or paths, but not on the other.
    ///
    /// # Errors
    /// See [`Self::access`], for both paths.
    #[crate::boxed]
    pub async fn access_difference(
        &self,
        requester: &Requester,
        (here, there): (&PermissionPath, &PermissionPath),
        operation: Operation,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AccessDifference>, CredentialError> {
        self.require_read_acl(requester, here).await?;
        self.require_read_acl(requester, there).await?;
        let both = (here.key(), there.key());
        let page =
            tables::Credentials::of(self.store()).access_difference(both, operation, after, limit).await;
        page.map_err(map_cursor_error)
    }

    /// Lists the actors that gained or lost an operation since a time (µs), from the audit log of permissions, oldest first. A page
    /// may hold fewer entries than requested, because changes of other operations are left out.
    ///
    /// # Errors
    /// See [`Self::access`].
    #[crate::boxed]
    pub async fn access_since(
        &self,
        requester: &Requester,
        (path, operation): (&PermissionPath, Operation),
        since_us: i64,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AccessChange>, CredentialError> {
        self.require_read_acl(requester, path).await?;
        let page =
            tables::Credentials::of(self.store()).access_since(path.key(), since_us, after, limit).await;
        let page = page.map_err(map_cursor_error)?;
        let wanted = Operations::of(operation).names();
        let rows = page.rows.iter().filter_map(|row| change(row, wanted[0])).collect();
        Ok(Page { rows, next: page.next })
    }

    async fn require_read_acl(
        &self,
        requester: &Requester,
        path: &PermissionPath,
    ) -> Result<(), CredentialError> {
        let may =
            tables::Credentials::of(self.store()).may(requester, path.key(), Operation::ReadAcl).await?;
        if may { Ok(()) } else { Err(CredentialError::NotFound) }
    }
}

/// Returns the change that an audit event made to an actor's access with this operation, if any.
fn change(row: &AccessChangeRow, operation: &str) -> Option<AccessChange> {
    let read = |text: &str| serde_json::from_str::<Json>(text).unwrap_or_default();
    let gives = |action: &str, details: &Json| {
        let operations = details["operations"].as_array();
        action == "credential.grant"
            && operations.is_some_and(|all| all.iter().any(|one| one.as_str() == Some(operation)))
    };
    let now = read(&row.details);
    let before = row.before.as_deref().map(read);
    let had = match (&row.action_before, &before) {
        (Some(action), Some(details)) => gives(action, details),
        // For a permission older than the log, only the revoked operations are known.
        _ => row.action != "credential.grant" && gives("credential.grant", &now),
    };
    let has = gives(&row.action, &now);
    let text = |field: &str| now[field].as_str().unwrap_or_default().to_owned();
    (had != has).then(|| AccessChange {
        at_us: row.at_us,
        by: row.by.clone(),
        actor: text("actor"),
        path: text("path"),
        gained: has,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_permission_changes_of_the_queried_operation_are_reported() {
        let details =
            |operations: &[&str]| json!({ "actor": "a", "path": "/x", "operations": operations }).to_string();
        let row = |action: &str, now: &[&str], before: Option<(&str, &[&str])>| AccessChangeRow {
            at_us: 1,
            by: "b".to_owned(),
            action: action.to_owned(),
            details: details(now),
            before: before.map(|(_, operations)| details(operations)),
            action_before: before.map(|(action, _)| action.to_owned()),
        };
        let gained = |row: &AccessChangeRow| change(row, "read").map(|change| change.gained);
        let (grant, ungrant) = ("credential.grant", "credential.ungrant");
        assert_eq!(gained(&row(grant, &["read"], None)), Some(true));
        assert_eq!(gained(&row(grant, &["write"], None)), None);
        assert_eq!(gained(&row(grant, &["read", "write"], Some((grant, &["read"])))), None);
        assert_eq!(gained(&row(grant, &["write"], Some((grant, &["read"])))), Some(false));
        assert_eq!(gained(&row(ungrant, &["read"], Some((grant, &["read"])))), Some(false));
        assert_eq!(gained(&row(ungrant, &["read"], None)), Some(false));
        assert_eq!(gained(&row(ungrant, &["write"], None)), None);
    }
}
