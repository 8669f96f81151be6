//! Numbers of the changes that nodes read.

use super::handle::SiteTables;
use db::{StoreError, Tx};

pub(super) const TAKE: &str = "-- key_changes_take
UPDATE key_places SET last_change = last_change + ?1 WHERE id = 1 RETURNING last_change";

pub(super) const LAST: &str = "-- key_changes_last
SELECT last_change FROM key_places WHERE id = 1";

/// Reserves numbers for `count` changes that nodes will read, and returns the first number. Until this transaction ends, no other
/// transaction can reserve numbers, so that a reader never skips a lower number. Call it after [`lock_site`](super::lock_site), and
/// before writing any row of a node.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn take_changes(tx: &mut Tx, count: usize) -> Result<i64, StoreError> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let row = tx.row(TAKE, vec![count.into()]).await?;
    let last = row
        .map_or_else(|| Err(StoreError::Corrupt("key_places has no row".to_owned())), |mut row| row.int())?;
    Ok(last - count + 1)
}

pub(super) async fn last_change(tx: &mut Tx) -> Result<i64, StoreError> {
    tx.row(LAST, Vec::new()).await?.map_or(Ok(0), |mut row| row.int())
}

impl SiteTables<'_> {
    /// Returns the number of the newest change for nodes; 0 before the first change.
    ///
    /// # Errors
    /// Database errors.
    pub async fn last_change(self) -> Result<i64, StoreError> {
        self.0.row(LAST, Vec::new()).await?.map_or(Ok(0), |mut row| row.int())
    }
}
