//! Policies and their generations.

use std::collections::HashMap;

use uuid::Uuid;

use super::changes::take_changes;
use super::handle::SiteTables;
use db::{BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};
use store::{SealedColumn, sealed_column};

/// A policy as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PolicyRow {
    /// UUID that the control plane assigned to the policy.
    pub id: Uuid,
    /// Unique name.
    pub name: String,
    /// Formula that selects the nodes.
    pub formula: String,
    /// Number of the newest generation, from 1.
    pub generation: u32,
    /// Incremented with every change.
    pub revision: i64,
    /// Number of the last change of the policy that nodes read.
    pub changed: i64,
    /// Actor that created the policy.
    pub created_by: String,
    /// Creation time, in µs since 1970-01-01 UTC.
    pub created_at_us: i64,
    /// Time of the last change, in µs since 1970-01-01 UTC.
    pub updated_at_us: i64,
}

/// A generation of a policy: one key pair.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GenerationRow {
    /// Id of the generation. The sealed seed is bound to this id, the table name and the column name `seed`.
    pub id: Uuid,
    /// Id of the policy.
    pub policy: Uuid,
    /// Number of the generation, from 1.
    pub generation: u32,
    /// Public key that keys are sealed to.
    pub public: Vec<u8>,
    /// Creation time, in µs since 1970-01-01 UTC.
    pub created_at_us: i64,
}

/// Result of deleting a policy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PolicyRemoval {
    /// The policy was deleted.
    Done,
    /// Not deleted, because keys are still sealed to the policy. Contains their number.
    HasKeys(i64),
    /// The policy does not exist.
    NotFound,
}

/// Column of the generations' sealed seeds (private keys), which a rotation of the master key re-wraps.
pub const SEALED_SEEDS: SealedColumn = sealed_column!("key_policy_generations", "uuid" Uuid "uuid", "seed");

macro_rules! policy_select {
    ($name:literal, $rest:literal) => {
        concat!(
            "-- ",
            $name,
            "\nSELECT uuid, name, formula, generation, revision, changed, created_by, created_at, updated_at \
             FROM key_policies\n",
            $rest
        )
    };
}

pub(super) const POLICY: &str = policy_select!("key_policy", "WHERE uuid = ?1 AND removed_at IS NULL");
pub(super) const POLICY_NAMED: &str =
    policy_select!("key_policy_named", "WHERE name = ?1 AND removed_at IS NULL");
pub(super) const POLICIES: &str =
    policy_select!("key_policies", "WHERE name > ?1 AND removed_at IS NULL ORDER BY name LIMIT ?2");

pub(super) const KEYS_COUNT: &str = "-- sealed_keys_count_of_policy
SELECT count(*) FROM sealed_keys WHERE policy = ?1 AND removed_at IS NULL";

pub(super) const COUNT: &str = "-- key_policies_count
SELECT count(*) FROM key_policies WHERE removed_at IS NULL";

pub(super) const INSERT: &str = "-- key_policy_insert
INSERT INTO key_policies (uuid, name, formula, generation, revision, changed, created_by, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?7, ?7) ON CONFLICT DO NOTHING";

pub(super) const INSERT_GENERATION: &str = "-- key_policy_generation_insert
INSERT INTO key_policy_generations (uuid, policy, generation, public, seed, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

pub(super) const ROTATE: &str = "-- key_policy_rotate
UPDATE key_policies SET generation = ?2, revision = revision + 1, changed = ?3, updated_at = ?4
WHERE uuid = ?1 AND generation = ?2 - 1 AND removed_at IS NULL";

pub(super) const TOUCH: &str = "-- key_policy_touch
UPDATE key_policies SET changed = ?2 WHERE uuid = ?1 AND removed_at IS NULL";

pub(super) const REMOVE: &str = "-- key_policy_remove
UPDATE key_policies SET changed = ?2, removed_at = ?3 WHERE uuid = ?1 AND removed_at IS NULL";

pub(super) const DELETE_GENERATIONS: &str = "-- key_policy_generations_delete
DELETE FROM key_policy_generations WHERE policy = ?1";

/// Deletes generations below the newest to which no key is sealed any more.
pub(super) const RETIRE: &str = "-- key_policy_generations_retire
DELETE FROM key_policy_generations WHERE policy = ?1 AND generation < ?2
AND NOT EXISTS (SELECT 1 FROM sealed_keys k WHERE k.policy = key_policy_generations.policy
                AND k.generation = key_policy_generations.generation AND k.removed_at IS NULL)";

pub(super) const GENERATIONS: &str = "-- key_policy_generations
SELECT uuid, policy, generation, public, created_at FROM key_policy_generations WHERE policy = ?1 ORDER BY generation";

pub(super) const GENERATIONS_ALL: &str = "-- key_policy_generations_all
SELECT uuid, policy, generation, public, created_at FROM key_policy_generations WHERE uuid > ?1 ORDER BY uuid LIMIT ?2";

pub(super) const SEEDS: BulkStatement = db::bulk! { (uuid uuid)
    "-- key_policy_seeds
SELECT uuid, seed FROM key_policy_generations WHERE uuid = {any uuid}"
};

/// Policies with more than one generation: their keys are sealed again.
pub(super) const BEHIND: &str = "-- key_policies_behind
SELECT DISTINCT p.uuid FROM key_policies p JOIN key_policy_generations g ON g.policy = p.uuid
AND g.generation < p.generation WHERE p.removed_at IS NULL AND p.uuid > ?1 ORDER BY p.uuid LIMIT ?2";

pub(super) const PURGE: &str = "-- key_policies_purge
DELETE FROM key_policies WHERE removed_at < ?1";

/// Returns the number of policies.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn count_policies(tx: &mut Tx) -> Result<i64, StoreError> {
    tx.row(COUNT, Vec::new()).await?.map_or(Ok(0), |mut row| row.int())
}

/// Inserts a policy with its first generation; `seed` is sealed. Returns false when the name is taken.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_policy(
    tx: &mut Tx,
    policy: &PolicyRow,
    generation: &GenerationRow,
    seed: &[u8],
) -> Result<bool, StoreError> {
    let changed = take_changes(tx, 1).await?;
    let parameters = vec![
        policy.id.into(),
        policy.name.as_str().into(),
        policy.formula.as_str().into(),
        i64::from(policy.generation).into(),
        changed.into(),
        policy.created_by.as_str().into(),
        policy.created_at_us.into(),
    ];
    if tx.execute(INSERT, parameters).await? == 0 {
        return Ok(false);
    }
    insert_generation(tx, generation, seed).await?;
    Ok(true)
}

/// Adds a policy's next generation; `seed` is sealed. Returns false when another rotation came first, or the policy does not exist.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn rotate_policy(
    tx: &mut Tx,
    generation: &GenerationRow,
    seed: &[u8],
    at_us: i64,
) -> Result<bool, StoreError> {
    let changed = take_changes(tx, 1).await?;
    let number = i64::from(generation.generation);
    let parameters = vec![generation.policy.into(), number.into(), changed.into(), at_us.into()];
    if tx.execute(ROTATE, parameters).await? == 0 {
        return Ok(false);
    }
    insert_generation(tx, generation, seed).await?;
    Ok(true)
}

async fn insert_generation(tx: &mut Tx, generation: &GenerationRow, seed: &[u8]) -> Result<(), StoreError> {
    let parameters = vec![
        generation.id.into(),
        generation.policy.into(),
        i64::from(generation.generation).into(),
        generation.public.as_slice().into(),
        seed.into(),
        generation.created_at_us.into(),
    ];
    tx.execute(INSERT_GENERATION, parameters).await.map(drop)
}

/// Deletes a key policy and all its key pairs (generations), and notifies nodes. Returns [`PolicyRemoval::HasKeys`] and keeps the
/// policy if keys are still sealed to it. After a deletion, the private keys that are wrapped to nodes are obsolete.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn remove_policy(tx: &mut Tx, id: Uuid, at_us: i64) -> Result<PolicyRemoval, StoreError> {
    let changed = take_changes(tx, 1).await?;
    let keys = keys_of(tx, id).await?;
    if keys > 0 {
        return Ok(PolicyRemoval::HasKeys(keys));
    }
    if tx.execute(REMOVE, vec![id.into(), changed.into(), at_us.into()]).await? == 0 {
        return Ok(PolicyRemoval::NotFound);
    }
    tx.execute(DELETE_GENERATIONS, vec![id.into()]).await?;
    Ok(PolicyRemoval::Done)
}

/// Deletes generations below the newest to which no key is sealed any more, and notifies nodes. Returns their number.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn retire_generations(tx: &mut Tx, policy: Uuid, newest: u32) -> Result<u64, StoreError> {
    // Locks the numbers without reserving one: a new number makes every server check all policies again, even if nothing is
    // deleted.
    take_changes(tx, 0).await?;
    let retired = tx.execute(RETIRE, vec![policy.into(), i64::from(newest).into()]).await?;
    if retired > 0 {
        let changed = take_changes(tx, 1).await?;
        tx.execute(TOUCH, vec![policy.into(), changed.into()]).await?;
    }
    Ok(retired)
}

/// Returns the sealed private keys of these generations.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn policy_seeds(tx: &mut Tx, generations: Vec<Uuid>) -> Result<HashMap<Uuid, Vec<u8>>, StoreError> {
    let rows = tx.bulk(&SEEDS, vec![Column::Uuid(generations)]).await?;
    rows.into_iter().map(|mut row| Ok((row.uuid()?, row.blob()?))).collect()
}

async fn keys_of(tx: &mut Tx, policy: Uuid) -> Result<i64, StoreError> {
    tx.row(KEYS_COUNT, vec![policy.into()]).await?.map_or(Ok(0), |mut row| row.int())
}

pub(super) async fn newest_generation(tx: &mut Tx, policy: Uuid) -> Result<Option<u32>, StoreError> {
    tx.row(POLICY, vec![policy.into()]).await?.map(|row| Ok(policy_of(row)?.generation)).transpose()
}

impl SiteTables<'_> {
    /// Returns a policy by its id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn policy(self, id: Uuid) -> Result<Option<PolicyRow>, StoreError> {
        self.0.row(POLICY, vec![id.into()]).await?.map(policy_of).transpose()
    }

    /// Returns a policy by its name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn policy_named(self, name: &str) -> Result<Option<PolicyRow>, StoreError> {
        self.0.row(POLICY_NAMED, vec![name.into()]).await?.map(policy_of).transpose()
    }

    /// Lists policies, ordered by name.
    ///
    /// # Errors
    /// Database errors; [`StoreError::BadCursor`].
    pub async fn policies(self, after: Option<&Cursor>, limit: usize) -> Result<Page<PolicyRow>, StoreError> {
        let (limit, rows) = limit_of(limit);
        let mut parameters = key_or(after, "key_policies", &[Value::Text(String::new())])?;
        parameters.push(rows.into());
        let found = self.0.rows(Cost::Walk, POLICIES, parameters).await?;
        page(found, limit, "key_policies", |row| {
            let policy = policy_of(row)?;
            let key = vec![policy.name.as_str().into()];
            Ok((policy, key))
        })
    }

    /// Returns the generations of a policy, newest last.
    ///
    /// # Errors
    /// Database errors.
    pub async fn policy_generations(self, policy: Uuid) -> Result<Vec<GenerationRow>, StoreError> {
        let rows = self.0.rows(Cost::Point, GENERATIONS, vec![policy.into()]).await?;
        rows.into_iter().map(generation_of).collect()
    }

    /// Returns generations of all policies whose id is greater than `after`, ordered by id.
    ///
    /// # Errors
    /// Database errors.
    pub async fn all_policy_generations(
        self,
        after: Uuid,
        limit: usize,
    ) -> Result<Vec<GenerationRow>, StoreError> {
        let (limit, _) = limit_of(limit);
        let parameters = vec![after.into(), (limit as i64).into()];
        let rows = self.0.rows(Cost::Walk, GENERATIONS_ALL, parameters).await?;
        rows.into_iter().map(generation_of).collect()
    }

    /// Returns the ids of policies that have generations below their newest. The ids are greater than `after`, in ascending order.
    ///
    /// # Errors
    /// Database errors.
    pub async fn policies_behind(self, after: Uuid, limit: usize) -> Result<Vec<Uuid>, StoreError> {
        let (limit, _) = limit_of(limit);
        let rows = self.0.rows(Cost::Walk, BEHIND, vec![after.into(), (limit as i64).into()]).await?;
        rows.into_iter().map(|mut row| row.uuid()).collect()
    }
}

fn policy_of(mut row: Row) -> Result<PolicyRow, StoreError> {
    Ok(PolicyRow {
        id: row.uuid()?,
        name: row.text()?,
        formula: row.text()?,
        generation: row.number()?,
        revision: row.int()?,
        changed: row.int()?,
        created_by: row.text()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
    })
}

fn generation_of(mut row: Row) -> Result<GenerationRow, StoreError> {
    Ok(GenerationRow {
        id: row.uuid()?,
        policy: row.uuid()?,
        generation: row.number()?,
        public: row.blob()?,
        created_at_us: row.int()?,
    })
}
