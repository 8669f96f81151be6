//! Records of master keys with their canaries (a known text, sealed under the key), and counts of sealed values by master key.

use crate::keys::Keys;
use crate::keys::SealedColumn;
use db::{Cost, Row, StoreError, Tx, Value};

/// Number of bytes in a master key's id.
pub const MASTER_KEY_ID: usize = 8;

/// A master key's row in the database. It contains no key material.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MasterKeyRow {
    /// Id of the master key. Every value that is sealed under the key contains this id.
    pub id: [u8; MASTER_KEY_ID],
    /// A known text, sealed under the master key.
    pub canary: Vec<u8>,
    /// Time when the master key was added, µs.
    pub created_at_us: i64,
}

const EVERY: &str = "-- master_keys
SELECT id, canary, created_at FROM master_keys ORDER BY created_at, id";

/// Inserts a master key. Does nothing if its id exists, or if `founding` is set and a founding key exists.
const INSERT: &str = "-- master_key_insert
INSERT INTO master_keys (id, canary, founding, created_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";

const DELETE_OTHERS: &str = "-- master_keys_delete_others
DELETE FROM master_keys WHERE id <> ?1";

pub(crate) const ALL: &[&str] = &[EVERY, INSERT, DELETE_OTHERS];

/// Inserts the first master key of a database. Of two concurrent calls only one inserts its key.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_first_master_key(tx: &mut Tx, key: &MasterKeyRow) -> Result<(), StoreError> {
    insert(tx, key, Value::Int(1)).await
}

/// Inserts a further master key. Does nothing if its id exists.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_master_key(tx: &mut Tx, key: &MasterKeyRow) -> Result<(), StoreError> {
    insert(tx, key, Value::Null).await
}

async fn insert(tx: &mut Tx, key: &MasterKeyRow, founding: Value) -> Result<(), StoreError> {
    let parameters =
        vec![key.id.as_slice().into(), key.canary.as_slice().into(), founding, key.created_at_us.into()];
    tx.execute(INSERT, parameters).await.map(drop)
}

/// Deletes every master key except `current`. The caller must first re-encrypt all values that are sealed under the deleted keys.
/// Returns the number of deleted keys.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn forget_other_master_keys(tx: &mut Tx, current: [u8; MASTER_KEY_ID]) -> Result<u64, StoreError> {
    tx.execute(DELETE_OTHERS, vec![current.as_slice().into()]).await
}

impl Keys<'_> {
    /// Returns all master key rows, oldest first.
    ///
    /// # Errors
    /// Database errors.
    pub async fn master(self) -> Result<Vec<MasterKeyRow>, StoreError> {
        let read = |mut row: Row| {
            let id = row.blob()?;
            let id =
                id.try_into().map_err(|_| StoreError::Corrupt("master_keys.id: not 8 bytes".to_owned()))?;
            Ok(MasterKeyRow { id, canary: row.blob()?, created_at_us: row.int()? })
        };
        self.0.rows(Cost::Point, EVERY, Vec::new()).await?.into_iter().map(read).collect()
    }

    /// Counts the sealed values of a column by their first bytes (version and master key id). Scans the column.
    ///
    /// # Errors
    /// Database errors.
    pub async fn sealed_heads(self, column: &SealedColumn) -> Result<Vec<(Vec<u8>, u64)>, StoreError> {
        let rows = self.0.rows(Cost::Walk, column.heads, Vec::new()).await?;
        rows.into_iter().map(|mut row| Ok((row.blob()?, row.number()?))).collect()
    }
}
