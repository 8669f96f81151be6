//! Stored private keys, and the iteration that re-wraps every sealed column under a new master key.

use uuid::Uuid;

use crate::store::handle;
use db::{
    BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page, with_limit,
};

handle! {
    /// Stored keys, sealed columns and master keys.
    Keys
}

/// A private key, sealed in the database or held by another provider.
#[derive(Clone, Eq, PartialEq)]
pub struct KeyRow {
    /// Primary key of the row.
    pub id: Uuid,
    /// Key type, such as `p256`.
    pub key_type: String,
    /// Public key as a DER SubjectPublicKeyInfo.
    pub spki: Vec<u8>,
    /// SHA-256 of `spki`, unique.
    pub spki_sha256: [u8; 32],
    /// `sealed`, or the name of the provider that holds the key.
    pub provider: String,
    /// The sealed key. `None` unless `provider` is `sealed`.
    pub sealed: Option<Vec<u8>>,
    /// Location of the key at its provider. `None` if `provider` is `sealed`.
    pub locator: Option<String>,
    /// Human-readable label.
    pub label: String,
    /// Time when the key was generated or imported, µs.
    pub created_at_us: i64,
    /// Time from which the use of the key is forbidden, µs. `None` while it is allowed.
    pub blocked_at_us: Option<i64>,
    /// Reason why the use of the key is forbidden.
    pub blocked_reason: Option<String>,
}

impl std::fmt::Debug for KeyRow {
    /// Omits the sealed key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyRow")
            .field("id", &self.id)
            .field("key_type", &self.key_type)
            .field("provider", &self.provider)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

const INSERT: &str = "-- key_insert
INSERT INTO keys (id, key_type, spki, spki_sha256, provider, sealed, locator, label, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (spki_sha256) DO NOTHING";

macro_rules! select {
    ($name:literal $rest:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT id, key_type, spki, spki_sha256, provider, sealed, locator, label, created_at, blocked_at, \
             blocked_reason, seq FROM keys ",
            $rest
        )
    };
}

const BY_ID: &str = select!("key_by_id" "WHERE id = ?1");
const BY_SPKI: &str = select!("key_by_spki" "WHERE spki_sha256 = ?1");
const PAGE: &str = select!("keys_page" "WHERE seq > ?1 ORDER BY seq LIMIT ?2");

const BY_IDS: BulkStatement = db::bulk! { select!("keys_these" "WHERE id {among ?1 uuid}") };

const BLOCK: &str = "-- key_block
UPDATE keys SET blocked_at = ?2, blocked_reason = ?3 WHERE id = ?1 AND blocked_at IS NULL";

const MOVE: &str = "-- key_move
UPDATE keys SET provider = ?2, locator = ?3, sealed = NULL WHERE id = ?1 AND sealed IS NOT NULL";

pub(crate) const ALL: &[&str] =
    &[INSERT, MOVE, BY_ID, BY_SPKI, PAGE, BLOCK, SEALED_KEYS.page, SEALED_KEYS.count, SEALED_KEYS.heads];
pub(crate) const BULKS: &[&BulkStatement] = &[&BY_IDS, &SEALED_KEYS.replace];

/// Stores a key. Returns the id of its row, which differs from `key.id` when the same key was already stored.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_key(tx: &mut Tx, key: &KeyRow) -> Result<Uuid, StoreError> {
    let inserted = tx
        .execute(
            INSERT,
            vec![
                key.id.into(),
                key.key_type.as_str().into(),
                key.spki.as_slice().into(),
                key.spki_sha256.into(),
                key.provider.as_str().into(),
                key.sealed.as_deref().into(),
                key.locator.as_deref().into(),
                key.label.as_str().into(),
                key.created_at_us.into(),
            ],
        )
        .await?;
    if inserted == 1 {
        return Ok(key.id);
    }
    let existing = tx.row(BY_SPKI, vec![key.spki_sha256.into()]).await?;
    existing
        .ok_or_else(|| StoreError::Stale("the key was deleted while it was being stored".to_owned()))?
        .uuid()
}

/// Blocks a key from use. Returns false when it is already blocked or does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn block_stored_key(tx: &mut Tx, id: Uuid, at_us: i64, reason: &str) -> Result<bool, StoreError> {
    Ok(tx.execute(BLOCK, vec![id.into(), at_us.into(), reason.into()]).await? == 1)
}

/// Moves a sealed key to a provider, which finds it at `locator`, and deletes the sealed form. Returns false when no sealed key has
/// this id.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn move_key(tx: &mut Tx, id: Uuid, provider: &str, locator: &str) -> Result<bool, StoreError> {
    Ok(tx.execute(MOVE, vec![id.into(), provider.into(), locator.into()]).await? == 1)
}

impl Keys<'_> {
    /// Returns the key with this id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn get(self, id: Uuid) -> Result<Option<KeyRow>, StoreError> {
        self.0.row(BY_ID, vec![id.into()]).await?.map(row_of).transpose()
    }

    /// Returns the keys with these ids, in any order. One statement for all.
    ///
    /// # Errors
    /// Database errors.
    pub async fn among(self, ids: &[Uuid]) -> Result<Vec<KeyRow>, StoreError> {
        let rows = self.0.among(&BY_IDS, ids.iter().map(|id| id.simple())).await?;
        rows.into_iter().map(row_of).collect()
    }

    /// Returns the key whose SubjectPublicKeyInfo has this SHA-256.
    ///
    /// # Errors
    /// Database errors.
    pub async fn by_spki(self, spki_sha256: &[u8; 32]) -> Result<Option<KeyRow>, StoreError> {
        self.0.row(BY_SPKI, vec![(*spki_sha256).into()]).await?.map(row_of).transpose()
    }

    /// Returns a page of the keys, oldest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn page(self, after: Option<&Cursor>, limit: usize) -> Result<Page<KeyRow>, StoreError> {
        let start = key_or(after, "keys", &[Value::Int(0)])?;
        let (limit, fetch_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, PAGE, with_limit(start, fetch_limit)).await?;
        let read = |mut row: Row| {
            let key = read_key_columns(&mut row)?;
            Ok((key, vec![Value::Int(row.int()?)]))
        };
        page(rows, limit, "keys", read)
    }
}

fn row_of(mut row: Row) -> Result<KeyRow, StoreError> {
    read_key_columns(&mut row)
}

fn read_key_columns(row: &mut Row) -> Result<KeyRow, StoreError> {
    Ok(KeyRow {
        id: row.uuid()?,
        key_type: row.text()?,
        spki: row.blob()?,
        spki_sha256: row.hash()?,
        provider: row.text()?,
        sealed: row.maybe_blob()?,
        locator: row.maybe_text()?,
        label: row.text()?,
        created_at_us: row.int()?,
        blocked_at_us: row.maybe_int()?,
        blocked_reason: row.maybe_text()?,
    })
}

/// A column whose values are sealed under the master key. The rotation of the master key iterates over all such columns. A module
/// with such a column adds the column's statements to its `ALL` and `BULKS`.
#[derive(Debug)]
pub struct SealedColumn {
    /// Name of the table. Part of the associated data (AAD) of each value.
    pub table: &'static str,
    /// Name of the column. Part of the associated data (AAD) of each value.
    pub column: &'static str,
    /// Type of the primary key. The key's bytes are part of the associated data (AAD) of each value.
    pub key: SealedKey,
    /// Statement that returns key and value of rows whose values must be re-encrypted, sorted by key. ?1: the key after which to
    /// start; ?2: the head (9 bytes) of values under the new master key; ?3: maximum number of rows.
    pub page: &'static str,
    /// Statement that counts the rows whose value does not begin with ?1.
    pub count: &'static str,
    /// Statement that counts the rows by the head of their value.
    pub heads: &'static str,
    /// Statement that replaces a value only if the stored value still equals the old value. Parameters: key, new value, old value.
    pub replace: BulkStatement,
}

/// Type of the primary key of a sealed value's row.
#[derive(Clone, Copy, Debug)]
pub enum SealedKey {
    /// A UUID of 16 bytes.
    Uuid,
    /// A text of any length.
    Text,
}

/// Defines a [`SealedColumn`] of a table whose key is a UUID or a text.
#[macro_export]
macro_rules! sealed_column {
    ($table:literal, $key:literal $kind:ident $pg:literal, $column:literal) => {
        $crate::SealedColumn {
            table: $table,
            column: $column,
            key: $crate::SealedKey::$kind,
            page: concat!(
                "-- sealed_page ",
                $table,
                ".",
                $column,
                "\nSELECT ",
                $key,
                ", ",
                $column,
                " FROM ",
                $table,
                " WHERE ",
                $key,
                " > ?1 AND substr(",
                $column,
                ", 1, 9) <> ?2 ORDER BY ",
                $key,
                " LIMIT ?3"
            ),
            count: concat!(
                "-- sealed_count ",
                $table,
                ".",
                $column,
                "\nSELECT count(*) FROM ",
                $table,
                " WHERE substr(",
                $column,
                ", 1, 9) <> ?1"
            ),
            heads: concat!(
                "-- sealed_heads ",
                $table,
                ".",
                $column,
                "\nSELECT substr(",
                $column,
                ", 1, 9), count(*) FROM ",
                $table,
                " WHERE ",
                $column,
                " IS NOT NULL GROUP BY substr(",
                $column,
                ", 1, 9)"
            ),
            replace: db::BulkStatement {
                sqlite: concat!(
                    "-- sealed_replace ",
                    $table,
                    ".",
                    $column,
                    "\nUPDATE ",
                    $table,
                    " SET ",
                    $column,
                    " = ?2 WHERE ",
                    $key,
                    " = ?1 AND ",
                    $column,
                    " = ?3"
                ),
                postgres: concat!(
                    "-- sealed_replace ",
                    $table,
                    ".",
                    $column,
                    "\nUPDATE ",
                    $table,
                    " SET ",
                    $column,
                    " = n.new FROM UNNEST(?1::",
                    $pg,
                    "[], ?2::bytea[], ?3::bytea[]) AS n(key, new, old) WHERE ",
                    $table,
                    ".",
                    $key,
                    " = n.key AND ",
                    $table,
                    ".",
                    $column,
                    " = n.old"
                ),
            },
        }
    };
}

/// The column of sealed private keys, for the rotation of the master key.
pub const SEALED_KEYS: SealedColumn = sealed_column!("keys", "id" Uuid "uuid", "sealed");

/// A sealed value and the primary key of its row.
#[derive(Clone)]
pub struct SealedValue {
    /// Bytes of the row's key.
    pub row: Vec<u8>,
    /// The value as stored, sealed under a master key.
    pub sealed: Vec<u8>,
}

/// Bytes at the start of a sealed value that contain its version and master key id.
pub const SEALED_HEAD: usize = 9;

impl Keys<'_> {
    /// Returns the next rows of a column, after `after`, whose values do not have the head `current` (version and master key id).
    ///
    /// # Errors
    /// Database errors.
    pub async fn sealed_page(
        self,
        column: &SealedColumn,
        after: Option<&[u8]>,
        current: &[u8; SEALED_HEAD],
        limit: usize,
    ) -> Result<Vec<SealedValue>, StoreError> {
        let start = match column.key {
            SealedKey::Uuid => Value::Blob(after.map_or_else(|| vec![0; 16], <[u8]>::to_vec)),
            SealedKey::Text => Value::Text(String::from_utf8_lossy(after.unwrap_or_default()).into_owned()),
        };
        let (limit, _) = limit_of(limit);
        let parameters = vec![start, current.as_slice().into(), (limit as i64).into()];
        let read = |mut row: Row| {
            let key = match column.key {
                SealedKey::Uuid => row.uuid()?.as_bytes().to_vec(),
                SealedKey::Text => row.text()?.into_bytes(),
            };
            Ok(SealedValue { row: key, sealed: row.blob()? })
        };
        self.0.rows(Cost::Walk, column.page, parameters).await?.into_iter().map(read).collect()
    }

    /// Returns the number of rows of a column whose values do not have the head `current`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn sealed_count(
        self,
        column: &SealedColumn,
        current: &[u8; SEALED_HEAD],
    ) -> Result<u64, StoreError> {
        let rows = self.0.rows(Cost::Walk, column.count, vec![current.as_slice().into()]).await?;
        rows.into_iter().next().map_or(Ok(0), |mut row| row.number())
    }
}

/// Replaces sealed values, given as pairs of old and new value. Skips rows that no longer contain the old value. Sends one
/// statement.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn replace_sealed(
    tx: &mut Tx,
    column: &'static SealedColumn,
    values: Vec<(SealedValue, Vec<u8>)>,
) -> Result<(), StoreError> {
    let mut keys = Vec::with_capacity(values.len());
    let (mut new, mut old) = (Vec::with_capacity(values.len()), Vec::with_capacity(values.len()));
    for (value, replacement) in values {
        keys.push(value.row);
        old.push(value.sealed);
        new.push(replacement);
    }
    let keys = match column.key {
        SealedKey::Uuid => {
            Column::Uuid(keys.iter().map(|key| Uuid::from_slice(key).unwrap_or_default()).collect())
        }
        SealedKey::Text => {
            Column::Text(keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect())
        }
    };
    tx.bulk(&column.replace, vec![keys, Column::Blob(new), Column::Blob(old)]).await.map(drop)
}
