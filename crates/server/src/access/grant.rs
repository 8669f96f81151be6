//! Grants of roles with scopes: validation, and conversion between the API and the database.

use std::collections::HashMap;

use api::access::Grant;
use http::StatusCode;
use store::{Identity, Role, Session};

use crate::access::{Granted, Permission, Permissions, built_in_role};
use crate::problem::Problem;

/// Maximum grants of one identity, for example one for each team or profile.
pub const GRANTS_MAX: usize = 64;

/// Permissions of custom roles, by name; `None` for a role whose permissions this version cannot parse.
pub(crate) type RoleTable = HashMap<String, Option<Permissions>>;

/// Grants or permissions in the database that this version cannot parse: damaged, or written by a newer version.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot read {column} of {object}: {reason}")]
pub(crate) struct UnreadableAccess {
    object: String,
    column: &'static str,
    reason: String,
}

impl From<UnreadableAccess> for Problem {
    fn from(error: UnreadableAccess) -> Self {
        tracing::error!(%error, "stored grants or permissions cannot be read");
        Self::of_status(StatusCode::INTERNAL_SERVER_ERROR, Some(error.to_string()))
            .hint("use the version of Bulla that wrote the object or a newer one, or have an administrator save the object again")
    }
}

/// Resolves a grant. A role that does not exist, or that this version cannot parse, has no permissions.
pub(crate) fn resolved(grant: &Grant, roles: &RoleTable) -> Granted {
    given(grant, roles, Permissions::NONE)
}

/// Returns the permissions that a caller must hold to assign or change a grant. For a role that this version cannot parse, these
/// are all permissions.
pub(crate) fn required_to_assign(grant: &Grant, roles: &RoleTable) -> Granted {
    given(grant, roles, Permissions::all())
}

fn given(grant: &Grant, roles: &RoleTable, unreadable: Permissions) -> Granted {
    let permissions = match (built_in_role(&grant.role), roles.get(&grant.role)) {
        (Some(role), _) => role.permissions,
        (None, Some(custom)) => custom.unwrap_or(unreadable),
        (None, None) => Permissions::NONE,
    };
    Granted { permissions, scope: grant.scope.clone() }
}

/// Parses the permissions of a role in the database.
///
/// # Errors
/// [`UnreadableAccess`] when they are not a list of permissions that this version knows.
pub(crate) fn permissions(role: &Role) -> Result<Vec<Permission>, UnreadableAccess> {
    let unreadable = |reason: String| UnreadableAccess {
        object: format!("role {:?}", role.name),
        column: "access_roles.permissions",
        reason,
    };
    let names: Vec<String> =
        serde_json::from_str(&role.permissions).map_err(|error| unreadable(error.to_string()))?;
    let known = |name: &String| name.parse().map_err(|_| unreadable(format!("unknown permission {name:?}")));
    names.iter().map(known).collect()
}

/// Parses the grants of an identity in the database.
///
/// # Errors
/// [`UnreadableAccess`] when they are not grants that this version knows.
pub(crate) fn stored(identity: &Identity) -> Result<Vec<Grant>, UnreadableAccess> {
    read(&identity.grants).map_err(|error| UnreadableAccess {
        object: format!("{} {} ({:?})", identity.kind, identity.id, identity.name),
        column: "access_identities.grants",
        reason: error.to_string(),
    })
}

/// Parses the grants that a session received at login.
///
/// # Errors
/// [`UnreadableAccess`] when they are not grants that this version knows.
pub(crate) fn session_grants(session: &Session) -> Result<Vec<Grant>, UnreadableAccess> {
    read(&session.grants).map_err(|error| UnreadableAccess {
        object: format!("a session of user {}", session.identity),
        column: "access_sessions.grants",
        reason: error.to_string(),
    })
}

/// Parses grants from their JSON text in the database.
pub(crate) fn read(text: &str) -> Result<Vec<Grant>, serde_json::Error> {
    serde_json::from_str(text)
}

/// Serializes grants as JSON text for the database.
pub(crate) fn to_store(grants: &[Grant]) -> String {
    serde_json::to_string(grants).unwrap_or_else(|_| "[]".to_owned())
}

/// Checks new grants: their number, and whether their roles exist.
pub(crate) fn check(grants: &[Grant], roles: &RoleTable) -> Result<(), Problem> {
    if grants.len() > GRANTS_MAX {
        return Err(Problem::unprocessable(format_args!(
            "at most {GRANTS_MAX} grants are allowed, not {}",
            grants.len()
        )));
    }
    for grant in grants {
        if built_in_role(&grant.role).is_none() && !roles.contains_key(&grant.role) {
            return Err(Problem::unprocessable(format_args!("there is no role {:?}", grant.role))
                .hint("`bulla user roles`, or GET /api/v1/roles, lists the roles"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Permission, Scope};

    #[test]
    fn unknown_and_unreadable_roles_grant_no_permissions() {
        let roles = RoleTable::from([
            ("own".to_owned(), Some(Permissions::of(&[Permission::JobRead]))),
            ("unreadable".to_owned(), None),
        ]);
        let grant = |role: &str| Grant { role: role.to_owned(), scope: Scope::Any };
        assert!(resolved(&grant("admin"), &roles).permissions.has(Permission::KeyRotate));
        assert!(resolved(&grant("own"), &roles).permissions.has(Permission::JobRead));
        for role in ["gone", "unreadable"] {
            assert_eq!(resolved(&grant(role), &roles).permissions, Permissions::NONE, "{role}");
        }
        assert_eq!(
            required_to_assign(&grant("own"), &roles).permissions,
            Permissions::of(&[Permission::JobRead])
        );
        assert_eq!(required_to_assign(&grant("unreadable"), &roles).permissions, Permissions::all());
        assert!(check(&[grant("own"), grant("viewer")], &roles).is_ok());
        assert!(check(&[grant("gone")], &roles).is_err());
        assert!(check(&vec![grant("own"); 65], &roles).is_err());
    }

    #[test]
    fn grant_without_scope_defaults_to_any() {
        assert_eq!(serde_json::from_str::<Grant>(r#"{"role":"a"}"#).unwrap().scope, Scope::Any);
    }
}
