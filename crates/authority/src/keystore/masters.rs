//! Checks that the configured master keys match the database, and counts the values that are encrypted under each master key.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use keys::{Keyring, MasterKeyId, OpenError};
use store::{MasterKeyRow, SEALED_KEYS, StoreError};

use super::KeyStore;

/// Reason why the master keys are rejected.
#[derive(Debug, thiserror::Error)]
pub enum MasterKeyCheckError {
    /// None of the configured master keys belongs to this database.
    #[error("the database is encrypted with the master key {expected}, but {given} is configured")]
    Wrong {
        /// Master keys recorded in the database.
        expected: String,
        /// Current master key in the configuration.
        given: MasterKeyId,
    },
    /// A canary value cannot be decrypted with its own master key.
    #[error("cannot decrypt the canary of the master key {id} in the table master_keys: {error}")]
    Canary {
        /// Identifier of the master key.
        id: MasterKeyId,
        /// Error of the decryption.
        error: OpenError,
    },
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A master key, and the number of values encrypted under it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MasterKeyUse {
    /// Identifier of the master key.
    pub id: MasterKeyId,
    /// Whether new values are encrypted under this key.
    pub current: bool,
    /// Whether the configuration of this node contains the key.
    pub configured: bool,
    /// Number of values encrypted under the key, by column such as `keys.sealed`. Columns without values are omitted.
    pub values: Vec<(String, u64)>,
}

impl MasterKeyUse {
    /// Returns the number of values encrypted under the key in all columns.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.values.iter().map(|(_, count)| count).sum()
    }
}

impl KeyStore {
    /// Checks the master keys against the canary values of the database, and records the current master key. If the database lists
    /// only other master keys, nothing is written. An empty database accepts the first key, even if several nodes start at the same
    /// time.
    ///
    /// # Errors
    /// [`MasterKeyCheckError`]
    #[crate::boxed]
    pub async fn verify_master_keys(&self) -> Result<(), MasterKeyCheckError> {
        let ring = &self.inner.keyring;
        let mut known = store::Keys::of(&self.inner.store).master().await?;
        if known.is_empty() {
            // Databases of earlier versions have no canary values. Their encrypted keys identify the master keys.
            let sealed =
                count_by_master_key(store::Keys::of(&self.inner.store).sealed_heads(&SEALED_KEYS).await?);
            if !sealed.is_empty() && !sealed.keys().any(|id| ring.masters().contains(id)) {
                return Err(wrong_master_key(sealed.into_keys(), ring));
            }
            self.record_current_master_key(true).await?;
            known = store::Keys::of(&self.inner.store).master().await?;
        }
        let mut proven = Vec::new();
        for row in &known {
            let id = MasterKeyId::from_bytes(row.id);
            if ring.proves(id, &row.canary).map_err(|error| MasterKeyCheckError::Canary { id, error })? {
                proven.push(id);
            }
        }
        if proven.is_empty() {
            return Err(wrong_master_key(known.iter().map(|row| MasterKeyId::from_bytes(row.id)), ring));
        }
        if !proven.contains(&ring.current()) {
            self.record_current_master_key(false).await?;
        }
        Ok(())
    }

    /// Records the current master key with its canary value. An existing record is not changed.
    pub(super) async fn record_current_master_key(&self, founding: bool) -> Result<(), StoreError> {
        let (id, canary) = self.inner.keyring.canary();
        let row = MasterKeyRow { id: *id.as_bytes(), canary, created_at_us: self.inner.clock.now_us() };
        let recorded = self.inner.store.write("master_key_insert", move |tx| {
            async move {
                if founding {
                    store::insert_first_master_key(tx, &row).await
                } else {
                    store::insert_master_key(tx, &row).await
                }
            }
            .boxed()
        });
        recorded.await
    }

    /// Deletes the canary values of all other master keys if no value is encrypted under them.
    pub(super) async fn forget_others(&self) -> Result<(), StoreError> {
        let current = *self.inner.keyring.current().as_bytes();
        let deletion = self.inner.store.write("master_keys_forget", move |tx| {
            async move { store::forget_other_master_keys(tx, current).await }.boxed()
        });
        deletion.await.map(drop)
    }

    /// Returns every master key that this node has, that the database lists, or under which a value is encrypted; the current one
    /// first. Counting the values reads all tables with encrypted columns.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn master_keys_in_use(&self) -> Result<Vec<MasterKeyUse>, StoreError> {
        let ring = &self.inner.keyring;
        let mut all = ring.masters();
        let recorded = store::Keys::of(&self.inner.store).master().await?;
        all.extend(recorded.iter().map(|row| MasterKeyId::from_bytes(row.id)));
        let mut values: BTreeMap<[u8; 8], Vec<(String, u64)>> = BTreeMap::new();
        let columns = self.inner.columns.read().clone();
        for column in columns {
            for (id, count) in
                count_by_master_key(store::Keys::of(&self.inner.store).sealed_heads(column).await?)
            {
                all.push(id);
                values.entry(*id.as_bytes()).or_default().push((super::name_of(column), count));
            }
        }
        let mut found: Vec<MasterKeyUse> = Vec::new();
        for id in all {
            if found.iter().all(|one| one.id != id) {
                found.push(MasterKeyUse {
                    id,
                    current: id == ring.current(),
                    configured: ring.masters().contains(&id),
                    values: values.remove(id.as_bytes()).unwrap_or_default(),
                });
            }
        }
        Ok(found)
    }
}

fn wrong_master_key(expected: impl Iterator<Item = MasterKeyId>, ring: &Keyring) -> MasterKeyCheckError {
    let expected: Vec<String> = expected.map(|id| id.to_string()).collect();
    MasterKeyCheckError::Wrong { expected: expected.join(" or "), given: ring.current() }
}

/// Returns the number of values by master key. Values that are not encrypted are not counted.
fn count_by_master_key(heads: Vec<(Vec<u8>, u64)>) -> std::collections::HashMap<MasterKeyId, u64> {
    heads
        .into_iter()
        .filter_map(|(head, count)| Some((Keyring::master_key_id_of_header(&head)?, count)))
        .collect()
}
