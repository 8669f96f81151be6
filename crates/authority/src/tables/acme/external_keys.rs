//! Storage of keys for external account binding (RFC 8555 section 7.3.4).

use uuid::Uuid;

use super::handle::Acme;
use super::lines::{from_lines, lines};
use super::position::{position, position_of};
use db::{Cost, Cursor, Page, Row, StoreError, Tx, Value, limit_of, page};
use store::{SealedColumn, sealed_column};

/// A key for external account binding.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcmeExternalKey {
    /// Identifier of the key.
    pub id: Uuid,
    /// Key identifier that clients send.
    pub kid: String,
    /// MAC key, encrypted.
    pub secret: Vec<u8>,
    /// Human-readable description.
    pub label: String,
    /// Whether the key may bind any number of accounts.
    pub reusable: bool,
    /// Profiles that the accounts of the key may use. An empty list allows any.
    pub profiles: Vec<String>,
    /// Names that the accounts of the key may request, by suffix. An empty list allows any.
    pub names: Vec<String>,
    /// Team on whose behalf the accounts of the key act.
    pub team: Option<String>,
    /// Creation time in microseconds.
    pub created_at_us: i64,
    /// Actor that created the key.
    pub created_by: String,
    /// Time in microseconds after which the key binds no new accounts.
    pub expires_at_us: Option<i64>,
    /// Time in microseconds at which the key and its accounts were disabled.
    pub disabled_at_us: Option<i64>,
    /// Time of the last account binding in microseconds.
    pub used_at_us: Option<i64>,
    /// Number of accounts bound with the key.
    pub uses: i64,
}

impl AcmeExternalKey {
    /// Returns whether the key can bind an account now.
    #[must_use]
    pub fn can_bind(&self, now_us: i64) -> bool {
        self.disabled_at_us.is_none()
            && self.expires_at_us.is_none_or(|end| now_us < end)
            && (self.reusable || self.uses == 0)
    }
}

macro_rules! columns {
    () => {
        "SELECT id, kid, secret, label, reusable, profiles, names, created_at, created_by, expires_at, disabled_at, \
         used_at, uses, team FROM acme_external_keys"
    };
}

/// Column with the encrypted MAC keys, for the rotation of the master key.
pub const SEALED_SECRETS: SealedColumn = sealed_column!("acme_external_keys", "id" Uuid "uuid", "secret");

pub(super) const KEY: &str = concat!("-- acme_external_key\n", columns!(), " WHERE id = ?1");

pub(super) const KEY_BY_KID: &str = concat!("-- acme_external_key_by_kid\n", columns!(), " WHERE kid = ?1");

/// Selects external keys, newest first.
pub(super) const KEYS: &str =
    concat!("-- acme_external_keys\n", columns!(), " WHERE id < ?1 ORDER BY id DESC LIMIT ?2");

pub(super) const INSERT: &str = "-- acme_external_key_insert
INSERT INTO acme_external_keys (id, kid, secret, label, reusable, profiles, names, created_at, created_by, expires_at, team, uses)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 0) ON CONFLICT (kid) DO NOTHING";

pub(super) const DISABLE: &str = "-- acme_external_key_disable
UPDATE acme_external_keys SET disabled_at = COALESCE(disabled_at, ?2) WHERE id = ?1";

pub(super) const DELETE: &str = "-- acme_external_key_delete
DELETE FROM acme_external_keys WHERE id = ?1";

pub(super) const USE: &str = "-- acme_external_key_use
UPDATE acme_external_keys SET used_at = ?2, uses = uses + 1
WHERE id = ?1 AND disabled_at IS NULL AND (expires_at IS NULL OR expires_at > ?2) AND (reusable = 1 OR uses = 0)";

/// Counts one use of the key. Returns false if the key cannot be used any more.
pub(super) async fn spend(tx: &mut Tx, id: Uuid, now_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(USE, vec![id.into(), now_us.into()]).await? == 1)
}

/// Stores an external key that is enabled and unused. Returns false if its `kid` is in use.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn insert_acme_external_key(tx: &mut Tx, new: &AcmeExternalKey) -> Result<bool, StoreError> {
    let parameters: Vec<Value> = vec![
        new.id.into(),
        new.kid.as_str().into(),
        new.secret.as_slice().into(),
        new.label.as_str().into(),
        new.reusable.into(),
        lines(&new.profiles).into(),
        lines(&new.names).into(),
        new.created_at_us.into(),
        new.created_by.as_str().into(),
        new.expires_at_us.into(),
        new.team.clone().into(),
    ];
    Ok(tx.execute(INSERT, parameters).await? == 1)
}

/// Disables an external key and its accounts. Returns false if it does not exist.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn disable_acme_external_key(tx: &mut Tx, id: Uuid, now_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(DISABLE, vec![id.into(), now_us.into()]).await? == 1)
}

/// Deletes an external key, which also disables its accounts. Returns false if it does not exist.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn delete_acme_external_key(tx: &mut Tx, id: Uuid) -> Result<bool, StoreError> {
    Ok(tx.execute(DELETE, vec![id.into()]).await? == 1)
}

impl Acme<'_> {
    /// Returns the external key with this identifier; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn external_key(self, id: Uuid) -> Result<Option<AcmeExternalKey>, StoreError> {
        self.0.row(KEY, vec![id.into()]).await?.map(external_key).transpose()
    }

    /// Returns the external key with this `kid`, the key identifier that clients send.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn external_key_named(self, kid: &str) -> Result<Option<AcmeExternalKey>, StoreError> {
        self.0.row(KEY_BY_KID, vec![kid.into()]).await?.map(external_key).transpose()
    }

    /// Returns a page of external keys, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], or an error of the database.
    pub async fn external_keys(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AcmeExternalKey>, StoreError> {
        let position = position(after, "acme-external-keys")?;
        let (limit, row_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, KEYS, vec![position, row_limit.into()]).await?;
        page(rows, limit, "acme-external-keys", |row| {
            let key = external_key(row)?;
            let position = position_of(key.id);
            Ok((key, position))
        })
    }
}

fn external_key(mut row: Row) -> Result<AcmeExternalKey, StoreError> {
    let mut key = AcmeExternalKey {
        id: row.uuid()?,
        kid: row.text()?,
        secret: row.blob()?,
        label: row.text()?,
        reusable: row.flag()?,
        profiles: from_lines(&row.text()?),
        names: from_lines(&row.text()?),
        team: None,
        created_at_us: row.int()?,
        created_by: row.text()?,
        expires_at_us: row.maybe_int()?,
        disabled_at_us: row.maybe_int()?,
        used_at_us: row.maybe_int()?,
        uses: row.int()?,
    };
    key.team = row.maybe_text()?;
    Ok(key)
}
