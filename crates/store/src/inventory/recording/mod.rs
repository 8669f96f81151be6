//! Stores batches of observations from scans.

mod partition;
mod postgres;
pub(crate) mod postgres_statements;
mod sqlite;
pub(crate) mod sqlite_statements;
pub(crate) mod tally;

use std::sync::{Arc, PoisonError};

use futures_util::FutureExt;
use uuid::Uuid;

use crate::inventory::handle::Scans;
use crate::inventory::model::{NewObservation, Recorded};
use db::{SqliteTransaction, StoreError};

impl Scans<'_> {
    /// Stores a batch in one transaction.
    ///
    /// Idempotent for a scan and endpoint: the first observation stays; a second one is counted as a duplicate. So a batch whose
    /// result is unknown (process killed, connection lost) can be sent again.
    ///
    /// An observation older than the endpoint's last one is added to the history and changes nothing else.
    ///
    /// # Errors
    /// [`StoreError::UnknownScan`] before [`crate::Scans::begin`]; transient errors (see [`StoreError::is_transient`]) when the
    /// database is busy, full or unreachable.
    ///
    /// # Cancellation
    /// After the future is dropped, the batch is stored either completely or not at all.
    pub async fn record(self, scan: Uuid, batch: &[NewObservation]) -> Result<Recorded, StoreError> {
        self.record_shared(scan, batch.into()).await
    }

    /// Same as [`crate::Scans::record`], without copying the batch.
    ///
    /// # Errors
    /// Same as [`crate::Scans::record`].
    pub async fn record_shared(
        self,
        scan: Uuid,
        batch: Arc<[NewObservation]>,
    ) -> Result<Recorded, StoreError> {
        if self.0.is_postgres() {
            return self
                .0
                .write("record", move |tx| async move { postgres::record(tx, scan, &batch).await }.boxed())
                .await;
        }
        let (known, cache) = (Arc::clone(&self.0.ids), Arc::clone(&self.0.ids));
        let record = move |transaction: &SqliteTransaction<'_>| {
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            sqlite::record(transaction, &known, scan, &batch)
        };
        self.0
            .exclusive("-- record", record, move |(recorded, new_ids)| {
                cache.lock().unwrap_or_else(PoisonError::into_inner).merge(new_ids);
                recorded
            })
            .await
    }
}
