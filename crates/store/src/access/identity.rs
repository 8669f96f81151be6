//! Identities: API tokens, people and client certificates.

use coded::named;
use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::handle::Access;
use db::{
    BulkStatement, Column, Cost, Cursor, ModuleStatements, Page, Row, StoreError, Tx, Value, key_or,
    limit_of, page, with_limit,
};

named! {
    /// Kind of an identity: API token, person or client certificate.
    pub enum IdentityKind: "identity kind" {
        /// An API token. Looked up by the hash of its secret.
        Token => "token",
        /// A person. Looked up by the hash of issuer and subject.
        User => "user",
        /// A client certificate. Looked up by the hash of its fingerprint or name.
        Certificate => "certificate",
    }
}

/// An API token, a person or a client certificate that may use the API, as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    /// Id of the identity, UUIDv7.
    pub id: Uuid,
    /// Whether this is an API token, a person or a client certificate.
    pub kind: IdentityKind,
    /// Name, unique within its kind.
    pub name: String,
    /// SHA-256 of the lookup key: the secret, issuer and subject, or the fingerprint or name.
    pub key_hash: [u8; 32],
    /// Human-readable label: a token's first characters, a person's subject, a certificate's fingerprint or name.
    pub label: String,
    /// E-mail address of a person.
    pub email: Option<String>,
    /// Roles with scopes as JSON.
    pub grants: String,
    /// Whether the identity may authenticate.
    pub enabled: bool,
    /// Incremented with every change.
    pub revision: i64,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Actor that created the identity, such as `user:alice`.
    pub created_by: String,
    /// Expiry of the identity, µs.
    pub expires_at_us: Option<i64>,
    /// Approximate time of the last use, µs.
    pub last_used_at_us: Option<i64>,
}

/// A new API token, person or client certificate to insert.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NewIdentity {
    /// Id of the identity, UUIDv7.
    pub id: Uuid,
    /// Whether this is an API token, a person or a client certificate.
    pub kind: IdentityKind,
    /// SHA-256 of the lookup key, as in [`Identity::key_hash`].
    pub key_hash: [u8; 32],
    /// Human-readable label, as in [`Identity::label`].
    pub label: String,
    /// The fields that can be changed later, such as the name and the grants.
    pub settings: IdentitySettings,
    /// Creation time, µs.
    pub created_at_us: i64,
    /// Actor that creates the identity, such as `user:alice`.
    pub created_by: String,
}

/// The fields of an identity that can be changed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct IdentitySettings {
    /// Name, unique within its kind.
    pub name: String,
    /// E-mail address of a person.
    pub email: Option<String>,
    /// Roles with scopes as JSON.
    pub grants: String,
    /// Whether the identity may authenticate.
    pub enabled: bool,
    /// Expiry of the identity, µs.
    pub expires_at_us: Option<i64>,
}

/// Result of a change of an identity, a role or a security key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AccessChange {
    /// The change was stored.
    Done,
    /// Another object of the same kind has this name or key.
    Taken,
    /// The object does not exist, or its revision has changed.
    Stale,
}

macro_rules! identity_columns {
    ($prefix:literal) => {
        concat!(
            $prefix,
            "id, ",
            $prefix,
            "kind, ",
            $prefix,
            "name, ",
            $prefix,
            "key_hash, ",
            $prefix,
            "label, ",
            $prefix,
            "email, ",
            $prefix,
            "grants, ",
            $prefix,
            "enabled, ",
            $prefix,
            "revision, ",
            $prefix,
            "created_at, ",
            $prefix,
            "created_by, ",
            $prefix,
            "expires_at, ",
            $prefix,
            "last_used_at"
        )
    };
}
pub(crate) use identity_columns;

/// Maximum number of keys in one lookup: a certificate's fingerprint and seven of its names.
pub(crate) const KEYS_MAX: usize = 8;

const BY_KEYS: &str = concat!(
    "-- access_identities_by_keys\nSELECT ",
    identity_columns!(""),
    " FROM access_identities WHERE key_hash IN (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
);

const BY_ID: &str = concat!(
    "-- access_identity\nSELECT ",
    identity_columns!(""),
    " FROM access_identities WHERE id = ?1 AND kind = ?2"
);

const PAGE: &str = concat!(
    "-- access_identities\nSELECT ",
    identity_columns!(""),
    " FROM access_identities WHERE kind = ?1 AND name > ?2 ORDER BY name LIMIT ?3"
);

const INSERT: &str = "-- access_identity_insert
INSERT INTO access_identities (id, kind, name, key_hash, label, email, grants, enabled, revision, created_at, created_by,
                               expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1, ?9, ?10, ?11) ON CONFLICT DO NOTHING";

const NAME_TAKEN: &str = "-- access_identity_name_taken
SELECT 1 FROM access_identities WHERE kind = ?1 AND name = ?2 AND id <> ?3";

const UPDATE: &str = "-- access_identity_update
UPDATE access_identities SET name = ?3, email = ?4, grants = ?5, enabled = ?6, expires_at = ?7, revision = revision + 1
WHERE id = ?1 AND revision = ?2";

const ANY: &str = "-- access_identity_any
SELECT 1 FROM access_identities WHERE kind = ?1 LIMIT 1";

pub(crate) const USED: BulkStatement = BulkStatement {
    sqlite: "-- access_identities_used
UPDATE access_identities SET last_used_at = ?2 WHERE id = ?1 AND COALESCE(last_used_at, 0) < ?2",
    postgres: "-- access_identities_used
WITH used AS (
    SELECT i.id, u.at FROM UNNEST(?1::uuid[], ?2::bigint[]) AS u (id, at)
    JOIN access_identities i ON i.id = u.id AND COALESCE(i.last_used_at, 0) < u.at
    ORDER BY i.id FOR NO KEY UPDATE OF i
)
UPDATE access_identities i SET last_used_at = u.at FROM used u WHERE i.id = u.id",
};

pub(crate) const SENDS: ModuleStatements =
    ModuleStatements::of(&[BY_KEYS, BY_ID, PAGE, INSERT, NAME_TAKEN, UPDATE, ANY], &[&USED]);

/// Inserts an identity. Returns [`AccessChange::Taken`] when its name or key exists.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_identity(tx: &mut Tx, new: &NewIdentity) -> Result<AccessChange, StoreError> {
    let settings = &new.settings;
    let parameters: Vec<Value> = vec![
        new.id.into(),
        new.kind.name().into(),
        settings.name.as_str().into(),
        new.key_hash.into(),
        new.label.as_str().into(),
        settings.email.clone().into(),
        settings.grants.as_str().into(),
        settings.enabled.into(),
        new.created_at_us.into(),
        new.created_by.as_str().into(),
        settings.expires_at_us.into(),
    ];
    let inserted = tx.execute(INSERT, parameters).await?;
    Ok(if inserted == 1 { AccessChange::Done } else { AccessChange::Taken })
}

/// Changes an identity if it still has `revision`. Returns [`AccessChange::Taken`] when another identity has the new name.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn update_identity(
    tx: &mut Tx,
    id: Uuid,
    kind: IdentityKind,
    revision: i64,
    settings: &IdentitySettings,
) -> Result<AccessChange, StoreError> {
    let taken = vec![kind.name().into(), settings.name.as_str().into(), id.into()];
    if tx.row(NAME_TAKEN, taken).await?.is_some() {
        return Ok(AccessChange::Taken);
    }
    let parameters: Vec<Value> = vec![
        id.into(),
        revision.into(),
        settings.name.as_str().into(),
        settings.email.clone().into(),
        settings.grants.as_str().into(),
        settings.enabled.into(),
        settings.expires_at_us.into(),
    ];
    Ok(changed(tx.execute(UPDATE, parameters).await?))
}

pub(super) fn changed(rows: u64) -> AccessChange {
    if rows == 1 { AccessChange::Done } else { AccessChange::Stale }
}

impl Access<'_> {
    /// Returns the identities with any of these keys. Only the first eight keys are used.
    ///
    /// # Errors
    /// Database errors.
    pub async fn identities_by_keys(self, keys: &[[u8; 32]]) -> Result<Vec<Identity>, StoreError> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        // The statement has a fixed number of parameters: unused ones repeat the first key.
        let padded = (0..KEYS_MAX).map(|at| Value::from(*keys.get(at).unwrap_or(first))).collect();
        self.0.rows(Cost::Point, BY_KEYS, padded).await?.iter_mut().map(identity_row).collect()
    }

    /// Returns the identity of this kind with this id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn identity(self, kind: IdentityKind, id: Uuid) -> Result<Option<Identity>, StoreError> {
        let found = self.0.row(BY_ID, vec![id.into(), kind.name().into()]).await?;
        found.map(|mut row| identity_row(&mut row)).transpose()
    }

    /// Lists identities of a kind, sorted by name.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn identities(
        self,
        kind: IdentityKind,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<Identity>, StoreError> {
        let listing = match kind {
            IdentityKind::Token => "tokens",
            IdentityKind::User => "users",
            IdentityKind::Certificate => "certificate-identities",
        };
        let mut parameters = vec![Value::from(kind.name())];
        parameters.extend(key_or(after, listing, &[Value::Text(String::new())])?);
        let (limit, fetch_limit) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, PAGE, with_limit(parameters, fetch_limit)).await?;
        page(rows, limit, listing, |mut row| {
            let identity = identity_row(&mut row)?;
            let key = vec![identity.name.as_str().into()];
            Ok((identity, key))
        })
    }

    /// Returns whether any identity of this kind exists.
    ///
    /// # Errors
    /// Database errors.
    pub async fn has_identities(self, kind: IdentityKind) -> Result<bool, StoreError> {
        Ok(self.0.row(ANY, vec![kind.name().into()]).await?.is_some())
    }

    /// Stores the time of the last use (µs) of each identity, in one statement.
    ///
    /// # Errors
    /// Database errors.
    pub async fn identities_used(self, used: Vec<(Uuid, i64)>) -> Result<(), StoreError> {
        self.0
            .write("identities_used", move |tx| {
                async move {
                    let (ids, times) = used.into_iter().unzip();
                    tx.bulk(&USED, vec![Column::Uuid(ids), Column::Int(times)]).await.map(drop)
                }
                .boxed()
            })
            .await
    }
}

pub(super) fn identity_row(row: &mut Row) -> Result<Identity, StoreError> {
    Ok(Identity {
        id: row.uuid()?,
        kind: row.named("access_identities.kind")?,
        name: row.text()?,
        key_hash: row.hash()?,
        label: row.text()?,
        email: row.maybe_text()?,
        grants: row.text()?,
        enabled: row.flag()?,
        revision: row.int()?,
        created_at_us: row.int()?,
        created_by: row.text()?,
        expires_at_us: row.maybe_int()?,
        last_used_at_us: row.maybe_int()?,
    })
}
