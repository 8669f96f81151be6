//! Custom roles: named sets of permissions.

use serde::{Deserialize, Serialize};

use super::handle::Access;
use super::identity::{AccessChange, changed};
use db::{Cost, ModuleStatements, Row, StoreError, Tx, Value};

/// Maximum number of roles that are read. All roles are held in memory.
const ROLES_MAX: i64 = 1_000;

/// A named set of permissions, as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Role {
    /// Unique name.
    pub name: String,
    /// Human-readable description.
    pub description: String,
    /// Permissions as JSON.
    pub permissions: String,
    /// Incremented with every change.
    pub revision: i64,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Time of the last change, µs.
    pub updated_at_us: i64,
}

/// Name, description and permissions of a role to create or change.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RoleChange {
    /// Unique name.
    pub name: String,
    /// Human-readable description.
    pub description: String,
    /// Permissions as JSON.
    pub permissions: String,
    /// Current revision. `None` for a new role.
    pub revision: Option<i64>,
    /// Time of the change, µs.
    pub at_us: i64,
}

const ROLES: &str = "-- access_roles
SELECT name, description, permissions, revision, created_at, updated_at FROM access_roles ORDER BY name LIMIT ?1";

const INSERT: &str = "-- access_role_insert
INSERT INTO access_roles (name, description, permissions, revision, created_at, updated_at)
VALUES (?1, ?2, ?3, 1, ?4, ?4) ON CONFLICT DO NOTHING";

const UPDATE: &str = "-- access_role_update
UPDATE access_roles SET description = ?2, permissions = ?3, revision = revision + 1, updated_at = ?4
WHERE name = ?1 AND revision = ?5";

const DELETE: &str = "-- access_role_delete
DELETE FROM access_roles WHERE name = ?1 AND revision = ?2";

pub(crate) const SENDS: ModuleStatements = ModuleStatements::of(&[ROLES, INSERT, UPDATE, DELETE], &[]);

/// Creates a role, or changes it if it still has `role.revision`. Returns [`AccessChange::Taken`] when the name of a new role
/// exists.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn put_role(tx: &mut Tx, role: &RoleChange) -> Result<AccessChange, StoreError> {
    let mut parameters: Vec<Value> = vec![
        role.name.as_str().into(),
        role.description.as_str().into(),
        role.permissions.as_str().into(),
        role.at_us.into(),
    ];
    match role.revision {
        None => {
            let inserted = tx.execute(INSERT, parameters).await?;
            Ok(if inserted == 1 { AccessChange::Done } else { AccessChange::Taken })
        }
        Some(revision) => {
            parameters.push(revision.into());
            Ok(changed(tx.execute(UPDATE, parameters).await?))
        }
    }
}

/// Deletes a role if it still has `revision`. Existing grants of the deleted role then contain no permissions.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_role(tx: &mut Tx, name: &str, revision: i64) -> Result<AccessChange, StoreError> {
    Ok(changed(tx.execute(DELETE, vec![name.into(), revision.into()]).await?))
}

/// Returns every role, sorted by name, within a transaction.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn roles_in(tx: &mut Tx) -> Result<Vec<Role>, StoreError> {
    tx.rows(ROLES, vec![ROLES_MAX.into()]).await?.into_iter().map(role_row).collect()
}

impl Access<'_> {
    /// Returns every role, sorted by name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn roles(self) -> Result<Vec<Role>, StoreError> {
        self.0.rows(Cost::Point, ROLES, vec![ROLES_MAX.into()]).await?.into_iter().map(role_row).collect()
    }
}

fn role_row(mut row: Row) -> Result<Role, StoreError> {
    Ok(Role {
        name: row.text()?,
        description: row.text()?,
        permissions: row.text()?,
        revision: row.int()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
    })
}
