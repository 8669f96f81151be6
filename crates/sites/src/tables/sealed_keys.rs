//! Private keys sealed to policies.

use uuid::Uuid;

use super::changes::take_changes;
use super::handle::SiteTables;
use db::{BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};

/// A sealed key without its sealed bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SealedKeyRow {
    /// SHA-256 of the SubjectPublicKeyInfo, which identifies the key.
    pub spki_sha256: [u8; 32],
    /// SubjectPublicKeyInfo in DER.
    pub spki: Vec<u8>,
    /// Display name, which need not be unique.
    pub name: String,
    /// Name of the key type, for example `rsa2048`.
    pub kind: String,
    /// Id of the policy that the key is sealed to.
    pub policy: Uuid,
    /// Name of the policy that the key is sealed to, from the table of policies.
    pub policy_name: String,
    /// Generation that the key is sealed to.
    pub generation: u32,
    /// Actor that sealed the key.
    pub created_by: String,
    /// Time when the key was first stored, in µs since 1970-01-01 UTC.
    pub created_at_us: i64,
    /// Time when the key was last sealed, in µs since 1970-01-01 UTC.
    pub updated_at_us: i64,
}

/// Result of storing a sealed key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SealedPut {
    /// The key was stored.
    Stored,
    /// The policy does not exist.
    NoPolicy,
    /// The key is sealed to an old generation. Contains the newest generation.
    Behind(u32),
}

/// A key that was sealed again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResealedKey {
    /// SHA-256 of the key's SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
    /// Generation that the key was sealed to before.
    pub from: u32,
    /// The new sealed bytes.
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

pub(super) const RESEAL: BulkStatement = db::bulk! {
    (spki_sha256 bytea, blob bytea, policy uuid, was bigint, new bigint, changed bigint, at bigint)
    "-- sealed_keys_reseal
UPDATE sealed_keys SET blob = :blob, generation = :new, changed = :changed, updated_at = :at
WHERE spki_sha256 = :spki_sha256 AND policy = :policy AND generation = :was AND removed_at IS NULL RETURNING generation"
};

pub(super) const PURGE: &str = "-- sealed_keys_purge
DELETE FROM sealed_keys WHERE removed_at < ?1";

/// Returns whether a key is sealed to any policy.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn is_key_sealed(tx: &mut Tx, spki_sha256: &[u8; 32]) -> Result<bool, StoreError> {
    Ok(tx.row(KEY, vec![spki_sha256.as_slice().into()]).await?.is_some())
}

/// Returns the number of keys sealed to all policies.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn count_sealed_keys(tx: &mut Tx) -> Result<i64, StoreError> {
    tx.row(COUNT, Vec::new()).await?.map_or(Ok(0), |mut row| row.int())
}

/// Stores a sealed key, in place of the previous one, and notifies nodes.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn put_sealed_key(tx: &mut Tx, key: &SealedKeyRow, blob: &[u8]) -> Result<SealedPut, StoreError> {
    // Rotations reserve numbers, too. So the newest generation stays the newest until the commit.
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

/// Withdraws a sealed key: deletes the sealed bytes and notifies nodes. Returns false when it does not exist.
///
/// # Errors
/// Database errors.
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

/// Replaces keys that were sealed again to generation `into`. Keys that others sealed or withdrew meanwhile are skipped. Returns
/// the number of replaced keys.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn reseal_keys(
    tx: &mut Tx,
    policy: Uuid,
    into: u32,
    keys: Vec<ResealedKey>,
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

impl SiteTables<'_> {
    /// Returns a sealed key by the SHA-256 of its SubjectPublicKeyInfo, without the sealed bytes.
    ///
    /// # Errors
    /// Database errors.
    pub async fn sealed_key(self, spki_sha256: &[u8; 32]) -> Result<Option<SealedKeyRow>, StoreError> {
        self.0
            .row(KEY, vec![spki_sha256.as_slice().into()])
            .await?
            .map(|mut row| key_of(&mut row))
            .transpose()
    }

    /// Lists sealed keys, ordered by name.
    ///
    /// # Errors
    /// Database errors; [`StoreError::BadCursor`].
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

    /// Returns how many keys are sealed to each generation of a policy.
    ///
    /// # Errors
    /// Database errors.
    pub async fn sealed_keys_by_generation(
        self,
        policy: Uuid,
    ) -> Result<std::collections::BTreeMap<u32, u64>, StoreError> {
        let rows = self.0.rows(Cost::Walk, BY_GENERATION, vec![policy.into()]).await?;
        rows.into_iter().map(|mut row| Ok((row.number()?, row.number()?))).collect()
    }

    /// Returns keys sealed to generations of a policy below `newest`, with their sealed bytes. The keys are ordered by
    /// `spki_sha256`, starting after `after`.
    ///
    /// # Errors
    /// Database errors.
    pub async fn sealed_keys_behind(
        self,
        policy: Uuid,
        newest: u32,
        after: &[u8; 32],
        limit: usize,
    ) -> Result<Vec<ResealedKey>, StoreError> {
        let (limit, _) = limit_of(limit);
        let parameters =
            vec![policy.into(), i64::from(newest).into(), after.as_slice().into(), (limit as i64).into()];
        let rows = self.0.rows(Cost::Walk, BEHIND, parameters).await?;
        let read = |mut row: Row| {
            Ok(ResealedKey { spki_sha256: row.hash()?, from: row.number()?, blob: row.blob()? })
        };
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
