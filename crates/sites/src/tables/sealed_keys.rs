//! Private keys sealed to policies.

use uuid::Uuid;

use super::changes::take_changes;
use super::handle::Places;
use db::{Bulk, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};

/// A sealed key, without what is sealed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SealedKeyRow {
    /// SHA-256 of its SubjectPublicKeyInfo: its identity.
    pub spki_sha256: [u8; 32],
    /// Its SubjectPublicKeyInfo, DER.
    pub spki: Vec<u8>,
    /// The display name.
    pub name: String,
    /// Its kind, a word.
    pub kind: String,
    /// Sealed to this policy.
    pub policy: Uuid,
    /// That policy's name; read with it, never stored here.
    pub policy_name: String,
    /// To this pair of it.
    pub generation: u32,
    /// Actor that sealed it.
    pub created_by: String,
    /// When it first came, µs.
    pub created_at_us: i64,
    /// When it was last sealed, µs.
    pub updated_at_us: i64,
}

/// What became of a sealed key that was to be stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SealedPut {
    /// The key was stored.
    Stored,
    /// There is no such policy.
    NoPolicy,
    /// It is sealed to another generation than this, the newest.
    Behind(u32),
}

/// A key that was sealed again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Resealed {
    /// Which.
    pub spki_sha256: [u8; 32],
    /// The generation that it was sealed to.
    pub from: u32,
    /// As it is sealed now.
    pub blob: Vec<u8>,
}

macro_rules! key_select {
    ($name:literal, $rest:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT k.spki_sha256, k.spki, k.name, k.kind, k.policy, COALESCE(p.name, ''), k.generation, k.created_by, \
             k.created_at, k.updated_at, k.id FROM sealed_keys k LEFT JOIN key_policies p ON p.uuid = k.policy\n",
            $rest
        )
    };
}

pub(super) const KEY: &str = key_select!("sealed_key", "WHERE k.spki_sha256 = ?1 AND k.removed_at IS NULL");
pub(super) const KEYS: &str = key_select!(
    "sealed_keys",
    "WHERE (k.name, k.id) > (?1, ?2) AND k.removed_at IS NULL ORDER BY k.name, k.id LIMIT ?3"
);

pub(super) const COUNT: &str = "-- sealed_keys_count
SELECT count(*) FROM sealed_keys WHERE removed_at IS NULL";

pub(super) const BY_GENERATION: &str = "-- sealed_keys_by_generation
SELECT generation, count(*) FROM sealed_keys WHERE policy = ?1 AND removed_at IS NULL GROUP BY generation";

pub(super) const PUT: &str = "-- sealed_key_put
INSERT INTO sealed_keys (spki_sha256, spki, name, kind, policy, generation, blob, changed, created_by, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)
ON CONFLICT (spki_sha256) DO UPDATE SET name = excluded.name, policy = excluded.policy, generation = excluded.generation,
  blob = excluded.blob, changed = excluded.changed, created_by = excluded.created_by, updated_at = excluded.updated_at,
  removed_at = NULL";

pub(super) const WITHDRAW: &str = "-- sealed_key_withdraw
UPDATE sealed_keys SET blob = NULL, changed = ?2, updated_at = ?3, removed_at = ?3
WHERE spki_sha256 = ?1 AND removed_at IS NULL";

pub(super) const BEHIND: &str = "-- sealed_keys_behind
SELECT spki_sha256, generation, blob FROM sealed_keys
WHERE policy = ?1 AND generation < ?2 AND spki_sha256 > ?3 AND removed_at IS NULL ORDER BY spki_sha256 LIMIT ?4";

pub(super) const RESEAL: Bulk = db::bulk! {
    (spki_sha256 bytea, blob bytea, policy uuid, was bigint, new bigint, changed bigint, at bigint)
    "-- sealed_keys_reseal
UPDATE sealed_keys SET blob = :blob, generation = :new, changed = :changed, updated_at = :at
WHERE spki_sha256 = :spki_sha256 AND policy = :policy AND generation = :was AND removed_at IS NULL RETURNING generation"
};

pub(super) const PURGE: &str = "-- sealed_keys_purge
DELETE FROM sealed_keys WHERE removed_at < ?1";

/// Whether a key is sealed, to whatever policy.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn is_key_sealed(tx: &mut Tx, spki_sha256: &[u8; 32]) -> Result<bool, StoreError> {
    Ok(tx.row(KEY, vec![spki_sha256.as_slice().into()]).await?.is_some())
}

/// How many keys are sealed, to all policies.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn count_sealed_keys(tx: &mut Tx) -> Result<i64, StoreError> {
    tx.row(COUNT, Vec::new()).await?.map_or(Ok(0), |mut row| row.int())
}

/// Stores a sealed key, in place of the previous one, and notifies nodes.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn put_sealed_key(tx: &mut Tx, key: &SealedKeyRow, blob: &[u8]) -> Result<SealedPut, StoreError> {
    // Rotations take numbers, too: from here on the newest generation stays the newest.
    let changed = take_changes(tx, 1).await?;
    match super::policies::newest_generation(tx, key.policy).await? {
        None => return Ok(SealedPut::NoPolicy),
        Some(newest) if newest != key.generation => return Ok(SealedPut::Behind(newest)),
        Some(_) => {}
    }
    let parameters = vec![
        key.spki_sha256.as_slice().into(),
        key.spki.as_slice().into(),
        key.name.as_str().into(),
        key.kind.as_str().into(),
        key.policy.into(),
        i64::from(key.generation).into(),
        blob.into(),
        changed.into(),
        key.created_by.as_str().into(),
        key.updated_at_us.into(),
    ];
    tx.execute(PUT, parameters).await?;
    Ok(SealedPut::Stored)
}

/// Withdraws a sealed key: deletes the sealed bytes and notifies nodes. False if it does not exist.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn withdraw_sealed_key(
    tx: &mut Tx,
    spki_sha256: &[u8; 32],
    at_us: i64,
) -> Result<bool, StoreError> {
    let changed = take_changes(tx, 1).await?;
    let parameters = vec![spki_sha256.as_slice().into(), changed.into(), at_us.into()];
    Ok(tx.execute(WITHDRAW, parameters).await? == 1)
}

/// Puts keys that were sealed again to generation `into` in place of what they were made from; what was sealed or
/// withdrawn by others meanwhile stays as it is. Says how many.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn reseal_keys(
    tx: &mut Tx,
    policy: Uuid,
    into: u32,
    keys: Vec<Resealed>,
    at_us: i64,
) -> Result<usize, StoreError> {
    let (count, first) = (keys.len(), take_changes(tx, keys.len()).await?);
    let (mut hashes, mut blobs) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut was = Vec::with_capacity(count);
    for key in keys {
        hashes.push(key.spki_sha256.to_vec());
        blobs.push(key.blob);
        was.push(i64::from(key.from));
    }
    let columns = vec![
        Column::Blob(hashes),
        Column::Blob(blobs),
        Column::Uuid(vec![policy; count]),
        Column::Int(was),
        Column::Int(vec![i64::from(into); count]),
        Column::Int((first..).take(count).collect()),
        Column::Int(vec![at_us; count]),
    ];
    Ok(tx.bulk(&RESEAL, columns).await?.len())
}

impl Places<'_> {
    /// A sealed key.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn sealed_key(self, spki_sha256: &[u8; 32]) -> Result<Option<SealedKeyRow>, StoreError> {
        self.0
            .row(KEY, vec![spki_sha256.as_slice().into()])
            .await?
            .map(|mut row| key_of(&mut row))
            .transpose()
    }

    /// Sealed keys by name.
    ///
    /// # Errors
    /// Those of the database; [`StoreError::BadCursor`].
    pub async fn sealed_keys(
        self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<SealedKeyRow>, StoreError> {
        let (limit, rows) = limit_of(limit);
        let first = [Value::Text(String::new()), Value::Int(0)];
        let mut parameters = key_or(after, "sealed_keys", &first)?;
        parameters.push(rows.into());
        let found = self.0.rows(Cost::Walk, KEYS, parameters).await?;
        page(found, limit, "sealed_keys", |mut row| {
            let key = key_of(&mut row)?;
            let at = vec![key.name.as_str().into(), row.int()?.into()];
            Ok((key, at))
        })
    }

    /// How many keys are sealed to each generation of a policy.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn sealed_keys_by_generation(
        self,
        policy: Uuid,
    ) -> Result<std::collections::BTreeMap<u32, u64>, StoreError> {
        let rows = self.0.rows(Cost::Walk, BY_GENERATION, vec![policy.into()]).await?;
        rows.into_iter().map(|mut row| Ok((row.number()?, row.number()?))).collect()
    }

    /// Keys sealed to generations of a policy below `newest`, as they are sealed, by their identities, after `after`.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn sealed_keys_behind(
        self,
        policy: Uuid,
        newest: u32,
        after: &[u8; 32],
        limit: usize,
    ) -> Result<Vec<Resealed>, StoreError> {
        let (limit, _) = limit_of(limit);
        let parameters =
            vec![policy.into(), i64::from(newest).into(), after.as_slice().into(), (limit as i64).into()];
        let rows = self.0.rows(Cost::Walk, BEHIND, parameters).await?;
        let read =
            |mut row: Row| Ok(Resealed { spki_sha256: row.hash()?, from: row.number()?, blob: row.blob()? });
        rows.into_iter().map(read).collect()
    }
}

fn key_of(row: &mut Row) -> Result<SealedKeyRow, StoreError> {
    Ok(SealedKeyRow {
        spki_sha256: row.hash()?,
        spki: row.blob()?,
        name: row.text()?,
        kind: row.text()?,
        policy: row.uuid()?,
        policy_name: row.text()?,
        generation: row.number()?,
        created_by: row.text()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
    })
}
