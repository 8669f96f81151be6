//! Who may do what with what lies where.

use std::collections::HashSet;

use uuid::Uuid;

use super::asker::{CredentialAsker, CredentialOperation, may};
use super::handle::Credentials;
use db::{Bulk, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page, with_limit};

/// What a permission grants.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PermissionSettings {
    /// The actor.
    pub actor: String,
    /// A name, or a path that ends in `/*`, as written.
    pub path: String,
    /// That in lower case.
    pub path_key: String,
    /// Bits of [`CredentialOperation`].
    pub operations: u8,
}

/// A permission as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PermissionRow {
    /// Its identity.
    pub id: Uuid,
    /// The granted operations.
    pub settings: PermissionSettings,
}

/// What the permissions of an actor are, for comparison: equal as long as none was given, changed or taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PermissionsMark([i64; 3]);

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

/// The permissions of an actor ?1 in few numbers. Another set of permissions has others: each change of one changes the
/// last, and a new one has an id that was never there.
pub(super) const MARK: &str = "-- credential_permissions_mark
SELECT count(*), CAST(COALESCE(sum(id), 0) AS BIGINT), CAST(COALESCE(sum(id * operations), 0) AS BIGINT)
FROM credential_permissions WHERE actor = ?1";

/// Whether the asker holds one of the operations ?4 on a name or path ?1. A path counts as the names below it.
pub(super) const MAY: &str = concat!(
    "-- credential_may\nSELECT CASE WHEN ",
    may!("c.bits", "c.everything", "c.actor"),
    " THEN 1 ELSE 0 END FROM (SELECT CAST(?1 AS TEXT) AS name_key, CAST(?2 AS BIGINT) AS everything,
    CAST(?3 AS TEXT) AS actor, CAST(?4 AS BIGINT) AS bits) c"
);

/// Who of some actors may read at which of some paths, exactly these. Probes an index, path by path.
pub(super) const READERS: Bulk = db::bulk! {
    "-- credential_readers
SELECT p.actor, p.path_key FROM {json_each(?1) n CROSS JOIN |}credential_permissions p
WHERE p.path_key {= n.value|= ANY(ARRAY(SELECT h FROM json_array_elements_text(?1::text::json) AS h))}
  AND p.operations & 1 <> 0 AND p.actor {among ?2 text}"
};

/// The paths (lower case) at which a permission for a name (lower case) can stand: the name, and all above it.
pub(super) fn paths_above(name: &str) -> impl Iterator<Item = String> + '_ {
    let above = name.char_indices().filter(|(_, c)| *c == '/').map(|(at, _)| format!("{}*", &name[..=at]));
    std::iter::once(name.to_owned()).chain(above)
}

/// Who of some actors may read which of some names.
#[derive(Clone, Debug, Default)]
pub struct CredentialReaders {
    actors: HashSet<String>,
    granted: HashSet<(String, String)>,
}

impl CredentialReaders {
    /// Whether the actor may read the name (lower case); `None` where the actor was not asked about.
    #[must_use]
    pub fn may(&self, actor: &str, name: &str) -> Option<bool> {
        let granted = || paths_above(name).any(|path| self.granted.contains(&(actor.to_owned(), path)));
        self.actors.contains(actor).then(granted)
    }
}

/// Makes a permission, at a time (µs) and by somebody; false when its actor has one for this path.
///
/// # Errors
/// Those of the database.
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

/// Changes what a permission grants, at a time (µs) and by somebody; false when it is not there.
///
/// # Errors
/// Those of the database.
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

/// Removes a permission; false when it is not there.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn delete_permission(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE, vec![id.into()]).await? == 1)
}

fn asked(asker: &CredentialAsker, path_key: &str, operation: CredentialOperation) -> Vec<Value> {
    let [everything, actor] = asker.values_at(path_key);
    vec![path_key.into(), everything, actor, (operation as i32).into()]
}

pub(super) async fn may_do(
    tx: &mut Tx,
    asker: &CredentialAsker,
    path_key: &str,
    operation: CredentialOperation,
) -> Result<bool, StoreError> {
    if asker.at(path_key).0 {
        return Ok(true);
    }
    let row = tx.row(MAY, asked(asker, path_key, operation)).await?;
    row.map_or(Ok(false), |mut row| row.flag())
}

impl Credentials<'_> {
    /// The mark of the permissions of an actor. A range of one index.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn permissions_mark(self, actor: &str) -> Result<PermissionsMark, StoreError> {
        let Some(mut row) = self.0.row(MARK, vec![actor.into()]).await? else {
            return Ok(PermissionsMark([0; 3]));
        };
        Ok(PermissionsMark([row.int()?, row.int()?, row.int()?]))
    }

    /// Whether the asker holds the operation on a name or path (lower case), without looking at what lies there.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn may(
        self,
        asker: &CredentialAsker,
        path_key: &str,
        operation: CredentialOperation,
    ) -> Result<bool, StoreError> {
        if asker.at(path_key).0 {
            return Ok(true);
        }
        let row = self.0.row(MAY, asked(asker, path_key, operation)).await?;
        row.map_or(Ok(false), |mut row| row.flag())
    }

    /// Who of these actors may read which of these names (lower case), there or not. One statement for all.
    ///
    /// # Errors
    /// Those of the database.
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

    /// A permission by its identity.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn permission(self, id: Uuid) -> Result<Option<PermissionRow>, StoreError> {
        self.0.row(BY_ID, vec![id.into()]).await?.map(|mut row| row_of(&mut row)).transpose()
    }

    /// The permission of an actor for a path (lower case).
    ///
    /// # Errors
    /// Those of the database.
    pub async fn permission_of(
        self,
        actor: &str,
        path_key: &str,
    ) -> Result<Option<PermissionRow>, StoreError> {
        let row = self.0.row(BY_PATH, vec![actor.into(), path_key.into()]).await?;
        row.map(|mut row| row_of(&mut row)).transpose()
    }

    /// The permissions for a path (lower case), in the order in which they were made, at most `most`.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn permissions_at(self, path_key: &str, most: usize) -> Result<Vec<PermissionRow>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = self.0.rows(Cost::Walk, AT, vec![path_key.into(), most.into()]).await?;
        rows.into_iter().map(|mut row| row_of(&mut row)).collect()
    }

    /// A page of all permissions, in the order in which they were made.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn permissions(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<PermissionRow>, StoreError> {
        let start = key_or(after, "credential-permissions", &[Value::Int(0)])?;
        let (limit, ask) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, PAGE, with_limit(start, ask)).await?;
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
