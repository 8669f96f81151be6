//! Roles with scopes, as they are given and stored.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::{Granted, Permissions, Scope, built_in_role};
use crate::problem::Problem;

/// Grants of one identity at most: a team or profile each, for a person with many.
pub const GRANTS_MAX: usize = 64;

/// A role within a scope.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The role's name.
    #[schema(example = "operator")]
    pub role: String,
    /// How far it reaches: `any`, `profile:NAME`, `issuer:NAME` or `team:NAME`.
    #[serde(default = "any")]
    #[schema(value_type = String, example = "team:web", default = "any")]
    pub scope: Scope,
}

fn any() -> Scope {
    Scope::Any
}

/// What roles of one's own hold, by name.
pub(crate) type RoleTable = HashMap<String, Permissions>;

impl Grant {
    /// What it gives. A role that is not there (any more) gives nothing.
    pub(crate) fn resolve(&self, roles: &RoleTable) -> Granted {
        let permissions = built_in_role(&self.role)
            .map(|role| role.permissions)
            .or_else(|| roles.get(&self.role).copied())
            .unwrap_or(Permissions::NONE);
        Granted { permissions, scope: self.scope.clone() }
    }
}

/// Reads grants as stored. What cannot be read gives nothing, and the log says so.
pub(crate) fn stored(text: &str) -> Vec<Grant> {
    serde_json::from_str(text).unwrap_or_else(|error| {
        tracing::error!(%error, "stored grants cannot be read; they give nothing");
        Vec::new()
    })
}

/// Grants as they are stored.
pub(crate) fn to_store(grants: &[Grant]) -> String {
    serde_json::to_string(grants).unwrap_or_else(|_| "[]".to_owned())
}

/// Checks grants that somebody wants to give: few enough, and of roles that are there.
pub(crate) fn check(grants: &[Grant], roles: &RoleTable) -> Result<(), Problem> {
    if grants.len() > GRANTS_MAX {
        return Err(Problem::unprocessable(format_args!(
            "at most {GRANTS_MAX} grants, not {}",
            grants.len()
        )));
    }
    for grant in grants {
        if built_in_role(&grant.role).is_none() && !roles.contains_key(&grant.role) {
            return Err(Problem::unprocessable(format_args!("there is no role {:?}", grant.role))
                .hint("GET /api/v1/roles lists the roles"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Permission;

    #[test]
    fn a_role_that_is_not_there_gives_nothing() {
        let roles = RoleTable::from([("own".to_owned(), Permissions::of(&[Permission::JobRead]))]);
        let grant = |role: &str| Grant { role: role.to_owned(), scope: Scope::Any };
        assert!(grant("admin").resolve(&roles).permissions.has(Permission::KeyRotate));
        assert!(grant("own").resolve(&roles).permissions.has(Permission::JobRead));
        assert_eq!(grant("gone").resolve(&roles).permissions, Permissions::NONE);
        assert!(check(&[grant("own"), grant("viewer")], &roles).is_ok());
        assert!(check(&[grant("gone")], &roles).is_err());
        assert!(check(&vec![grant("own"); 65], &roles).is_err());
    }

    #[test]
    fn what_is_stored_is_read_again_and_nonsense_gives_nothing() {
        let grants = vec![Grant { role: "viewer".to_owned(), scope: Scope::team("a") }];
        assert_eq!(stored(&to_store(&grants)), grants);
        assert_eq!(stored(r#"[{"role":"viewer","scope":"galaxy:x"}]"#), Vec::new());
        assert_eq!(serde_json::from_str::<Grant>(r#"{"role":"a"}"#).unwrap().scope, Scope::Any);
    }
}
