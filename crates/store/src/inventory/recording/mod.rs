//! Batches of observations on their way into the tables.

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
    /// Stores a batch in one transaction: all of it or nothing.
    ///
    /// Idempotent for a scan and endpoint: the first observation stays, a second is counted as a duplicate. So a batch
    /// whose fate is unknown (killed, connection lost) can be given again.
    ///
    /// An observation older than the endpoint's last one is kept in the history and changes nothing else.
    ///
    /// # Errors
    /// [`StoreError::UnknownScan`] before [`crate::Scans::begin`]; transient errors (see [`StoreError::is_transient`])
    /// when the database is busy, full or away.
    ///
    /// # Cancellation
    /// Dropping the future may leave the batch stored or not, never half.
    pub async fn record(self, scan: Uuid, batch: &[NewObservation]) -> Result<Recorded, StoreError> {
        self.record_shared(scan, batch.into()).await
    }

    /// [`crate::Scans::record`] without copying the batch.
    ///
    /// # Errors
    /// As [`crate::Scans::record`].
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
        let (known, learning) = (Arc::clone(&self.0.ids), Arc::clone(&self.0.ids));
        let record = move |transaction: &SqliteTransaction<'_>| {
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            sqlite::record(transaction, &known, scan, &batch)
        };
        self.0
            .alone("-- record", record, move |(recorded, learnt)| {
                learning.lock().unwrap_or_else(PoisonError::into_inner).learn(learnt);
                recorded
            })
            .await
    }
}
