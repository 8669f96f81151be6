//! Tables of permissions.

use std::collections::HashSet;

use uuid::Uuid;

use super::handle::Credentials;
use super::requester::{CredentialOperation, Requester, may};
use db::{BulkStatement, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page, with_limit};

/// Actor, path and operations of a permission.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PermissionSettings {
    /// Actor that has the permission.
    pub actor: String,
    /// A name, or a path that ends in `/*`, as written.
    pub path: String,
    /// The path in lower case.
    pub path_key: String,
    /// Bits of [`CredentialOperation`].
    pub operations: u8,
}

/// A permission as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PermissionRow {
    /// Id of the permission, assigned when it is granted.
    pub id: Uuid,
    /// Actor, path and operations of the permission.
    pub settings: PermissionSettings,
}

/// A fingerprint of an actor's permissions. It is equal as long as no permission was granted, changed or revoked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PermissionsFingerprint([i64; 3]);

impl PermissionsFingerprint {
    /// Returns whether the actor has no permission.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0[0] == 0
    }
}

pub(super) const INSERT: &str = "-- credential_permission_insert
INSERT INTO credential_permissions (uuid, actor, path, path_key, prefix, operations, created_at, granted_by)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (actor, path_key) DO NOTHING";
pub(super) const UPDATE: &str = "-- credential_permission_update
UPDATE credential_permissions SET operations = ?2, granted_by = ?3, changed_at = ?4 WHERE uuid = ?1";
pub(super) const DELETE: &str = "-- credential_permission_delete
DELETE FROM credential_permissions WHERE uuid = ?1";

macro_rules! select {
    ($name:literal, $rest:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT uuid, actor, path, path_key, operations, id FROM credential_permissions WHERE ",
            $rest
        )
    };
}

pub(super) const BY_ID: &str = select!("credential_permission", "uuid = ?1");
pub(super) const BY_PATH: &str = select!("credential_permission_at", "actor = ?1 AND path_key = ?2");
pub(super) const AT: &str = select!("credential_permissions_at", "path_key = ?1 ORDER BY id LIMIT ?2");
pub(super) const PAGE: &str = select!("credential_permissions_page", "id > ?1 ORDER BY id LIMIT ?2");

/// The fingerprint of the permissions of actor ?1: number of permissions, sum of their ids, sum of ids weighted by operations. A
/// change of a permission changes the last sum. A new permission has an id that was never used before.
pub(super) const MARK: &str = "-- credential_permissions_mark
SELECT count(*), CAST(COALESCE(sum(id), 0) AS BIGINT), CAST(COALESCE(sum(id * operations), 0) AS BIGINT)
FROM credential_permissions WHERE actor = ?1";

/// Whether the caller may perform one of the operations ?4 on a name or path ?1. A path means all names below it.
pub(super) const MAY: &str = concat!(
    "-- credential_may\nSELECT CASE WHEN ",
    may!("c.bits", "c.everything", "c.actor"),
    " THEN 1 ELSE 0 END FROM (SELECT CAST(?1 AS TEXT) AS name_key, CAST(?2 AS BIGINT) AS everything,
    CAST(?3 AS TEXT) AS actor, CAST(?4 AS BIGINT) AS bits) c"
);

/// Pairs of actor and path where the actor has a permission to read for exactly this path. Uses one index probe for each path.
/// ?1: paths; ?2: actors.
pub(super) const READERS: BulkStatement = db::bulk! {
    "-- credential_readers
SELECT p.actor, p.path_key FROM {json_each(?1) n CROSS JOIN |}credential_permissions p
WHERE p.path_key {= n.value|= ANY(ARRAY(SELECT h FROM json_array_elements_text(?1::text::json) AS h))}
  AND p.operations & 1 <> 0 AND p.actor {among ?2 text}"
};

/// Returns the paths (lower case) whose permissions apply to a name (lower case): the name itself, and all parent paths.
pub(super) fn paths_above(name: &str) -> impl Iterator<Item = String> + '_ {
    let above = name.char_indices().filter(|(_, c)| *c == '/').map(|(at, _)| format!("{}*", &name[..=at]));
    std::iter::once(name.to_owned()).chain(above)
}

/// Result of a query for several actors and names: which actor may read which name.
#[derive(Clone, Debug, Default)]
pub struct CredentialReaders {
    actors: HashSet<String>,
    granted: HashSet<(String, String)>,
}

impl CredentialReaders {
    /// Returns whether the actor may read the name (lower case); `None` if the actor was not part of the query.
    #[must_use]
    pub fn may(&self, actor: &str, name: &str) -> Option<bool> {
        let granted = || paths_above(name).any(|path| self.granted.contains(&(actor.to_owned(), path)));
        self.actors.contains(actor).then(granted)
    }
}

/// Creates a permission, with its time (µs) and the acting user. Returns false when its actor already has one for this path.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn insert_permission(
    tx: &mut Tx,
    id: Uuid,
    settings: &PermissionSettings,
    (at_us, by): (i64, &str),
) -> Result<bool, StoreError> {
    let prefix = settings.path_key.strip_suffix('*').map(str::to_owned);
    let parameters = vec![
        id.into(),
        settings.actor.as_str().into(),
        settings.path.as_str().into(),
        settings.path_key.as_str().into(),
        prefix.into(),
        i32::from(settings.operations).into(),
        at_us.into(),
        by.into(),
    ];
    Ok(tx.execute(INSERT, parameters).await? == 1)
}

/// Changes the operations of a permission, with the time (µs) and the acting user. Returns false when the permission does not
/// exist.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn update_permission(
    tx: &mut Tx,
    id: Uuid,
    operations: u8,
    (at_us, by): (i64, &str),
) -> Result<bool, StoreError> {
    let parameters = vec![id.into(), i32::from(operations).into(), by.into(), at_us.into()];
    Ok(tx.execute(UPDATE, parameters).await? == 1)
}

/// Deletes a permission. Returns false when it does not exist.
///
/// # Errors
/// Errors of the database.
#[crate::boxed]
pub async fn delete_permission(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE, vec![id.into()]).await? == 1)
}

fn parameters(requester: &Requester, path_key: &str, operation: CredentialOperation) -> Vec<Value> {
    let [everything, actor] = requester.name_access_parameters(path_key);
    vec![path_key.into(), everything, actor, (operation as i32).into()]
}

pub(super) async fn is_permitted(
    tx: &mut Tx,
    requester: &Requester,
    path_key: &str,
    operation: CredentialOperation,
) -> Result<bool, StoreError> {
    if requester.at(path_key).0 {
        return Ok(true);
    }
    let row = tx.row(MAY, parameters(requester, path_key, operation)).await?;
    row.map_or(Ok(false), |mut row| row.flag())
}

impl Credentials<'_> {
    /// Returns the fingerprint of an actor's permissions. Reads one index range.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn permissions_fingerprint(self, actor: &str) -> Result<PermissionsFingerprint, StoreError> {
        let Some(mut row) = self.0.row(MARK, vec![actor.into()]).await? else {
            return Ok(PermissionsFingerprint([0; 3]));
        };
        Ok(PermissionsFingerprint([row.int()?, row.int()?, row.int()?]))
    }

    /// Returns whether the caller may perform the operation on a name or path (lower case), whether or not the name exists.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn may(
        self,
        requester: &Requester,
        path_key: &str,
        operation: CredentialOperation,
    ) -> Result<bool, StoreError> {
        if requester.at(path_key).0 {
            return Ok(true);
        }
        let row = self.0.row(MAY, parameters(requester, path_key, operation)).await?;
        row.map_or(Ok(false), |mut row| row.flag())
    }

    /// Returns which of the actors may read which of the credentials. `names` are lower case and need not exist. Uses one
    /// statement.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn readers(
        self,
        actors: HashSet<String>,
        names: &[String],
    ) -> Result<CredentialReaders, StoreError> {
        let paths: HashSet<String> = names.iter().flat_map(|name| paths_above(name)).collect();
        if actors.is_empty() || paths.is_empty() {
            return Ok(CredentialReaders { actors, granted: HashSet::new() });
        }
        let list = |all: &HashSet<String>| serde_json::Value::from_iter(all.iter().cloned()).to_string();
        let text = READERS.of(self.0);
        let rows = self.0.rows(Cost::Point, text, vec![list(&paths).into(), list(&actors).into()]).await?;
        let granted = rows.into_iter().map(|mut row| Ok((row.text()?, row.text()?)));
        Ok(CredentialReaders { granted: granted.collect::<Result<_, StoreError>>()?, actors })
    }

    /// Returns a permission by its id.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn permission(self, id: Uuid) -> Result<Option<PermissionRow>, StoreError> {
        self.0.row(BY_ID, vec![id.into()]).await?.map(|mut row| row_of(&mut row)).transpose()
    }

    /// Returns the permission of an actor for a path (lower case).
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn permission_of(
        self,
        actor: &str,
        path_key: &str,
    ) -> Result<Option<PermissionRow>, StoreError> {
        let row = self.0.row(BY_PATH, vec![actor.into(), path_key.into()]).await?;
        row.map(|mut row| row_of(&mut row)).transpose()
    }

    /// Returns the permissions for a path (lower case), in creation order, at most `limit`.
    ///
    /// # Errors
    /// Errors of the database.
    pub async fn permissions_at(
        self,
        path_key: &str,
        limit: usize,
    ) -> Result<Vec<PermissionRow>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.0.rows(Cost::Walk, AT, vec![path_key.into(), limit.into()]).await?;
        rows.into_iter().map(|mut row| row_of(&mut row)).collect()
    }

    /// Returns a page of all permissions, in creation order.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; errors of the database.
    pub async fn permissions(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<PermissionRow>, StoreError> {
        let start = key_or(after, "credential-permissions", &[Value::Int(0)])?;
        let (limit, fetch_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, PAGE, with_limit(start, fetch_limit)).await?;
        page(rows, limit, "credential-permissions", |mut row| {
            let permission = row_of(&mut row)?;
            Ok((permission, vec![Value::Int(row.int()?)]))
        })
    }
}

fn row_of(row: &mut Row) -> Result<PermissionRow, StoreError> {
    Ok(PermissionRow {
        id: row.uuid()?,
        settings: PermissionSettings {
            actor: row.text()?,
            path: row.text()?,
            path_key: row.text()?,
            operations: row.number()?,
        },
    })
}
