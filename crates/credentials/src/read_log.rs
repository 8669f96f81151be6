//! The log of reads: which actor read which version. Records are written in batches, before the value is returned or shortly after.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, Batcher, BatcherOptions, Store, StoreError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::CredentialError;
use crate::options::ReadAudit;

/// Maximum responses in the queue for the log. When it is full, readers wait. One response has up to 1,000 versions.
const ANSWERS_WAITING_MAX: usize = 4_096;
/// Maximum responses whose records share a transaction.
const ANSWERS_BATCH: usize = 512;
/// Maximum concurrent transactions. All reads during one commit share the next transaction, and so one flush of the disk.
const AT_ONCE: usize = 1;
/// Maximum attempts of a transaction that fails because of a conflict.
const ATTEMPTS: usize = 3;

/// Maximum buffered reads in the queue for the log. When it is full, readers wait.
const READINGS_WAITING_MAX: usize = 8_192;
/// Maximum reads in one transaction: a lookup of 1,000 names fits.
const READINGS_BATCH: usize = 1_024;
/// Maximum delay before a buffered read is logged. A crash loses the reads of this period.
const READINGS_EVERY: Duration = Duration::from_millis(200);
/// Maximum distinct reads buffered while the database is unavailable, about 200 bytes each. When the buffer is full, readers wait.
const READINGS_PENDING_MAX: usize = 65_536;
/// Delay before the next transaction after a failed one.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A read: which actor read which version.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Reading {
    pub(crate) actor: String,
    pub(crate) name: String,
    pub(crate) version: Uuid,
}

/// A read with its time, µs since 1970-01-01 UTC.
type TimedReading = (i64, Reading);

/// The read log, in the mode that [`ReadAudit`] sets.
#[derive(Clone)]
pub(crate) enum ReadLog {
    Durable(Batcher<Vec<TimedReading>, Result<(), Arc<StoreError>>>),
    Buffered(ReadBuffer),
}

impl ReadLog {
    /// Opens the log. Starts the task that writes durable records; [`Self::run`] writes buffered records.
    pub(crate) fn open(mode: ReadAudit, store: &Store) -> Self {
        if mode == ReadAudit::Buffered {
            return Self::Buffered(ReadBuffer::default());
        }
        let batches =
            BatcherOptions { batch_max: ANSWERS_BATCH, queue_max: ANSWERS_WAITING_MAX, at_once: AT_ONCE };
        let store = store.clone();
        Self::Durable(Batcher::new("credential-read-log", batches, move |answers| {
            write_read_log(store.clone(), answers).boxed()
        }))
    }

    /// Waits until the reads of one response are in the log, or in the buffer if buffered mode is configured.
    ///
    /// # Errors
    /// [`CredentialError::Unlogged`] when the log was not written. The response must then not be sent.
    pub(crate) async fn record(&self, readings: Vec<TimedReading>) -> Result<(), CredentialError> {
        match self {
            _ if readings.is_empty() => Ok(()),
            Self::Durable(batcher) => match batcher.submit(readings).await {
                Ok(written) => written.map_err(CredentialError::Unlogged),
                Err(_) => Err(CredentialError::Internal("the read log queue has stopped".to_owned())),
            },
            Self::Buffered(buffer) => {
                buffer.record(readings).await;
                Ok(())
            }
        }
    }

    /// Returns the number of responses that wait for a durable record.
    pub(crate) fn pending(&self) -> usize {
        match self {
            Self::Durable(batcher) => batcher.pending(),
            Self::Buffered(_) => 0,
        }
    }

    /// Writes buffered reads until `stop`, then the remaining ones.
    pub(crate) async fn run(self, store: Store, stop: CancellationToken) {
        if let Self::Buffered(buffer) = self {
            buffer.run(store, stop).await;
        }
    }
}

/// Writes the reads of all queued responses in one transaction, and returns a result for each response. Repeated reads of a version
/// by one actor become one record with a count.
async fn write_read_log(store: Store, answers: Vec<Vec<TimedReading>>) -> Vec<Result<(), Arc<StoreError>>> {
    let count = answers.len();
    let mut pending = Pending::default();
    answers.into_iter().flatten().for_each(|reading| pending.record(reading));
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match pending.write(&store).await {
            Ok(()) => return vec![Ok(()); count],
            // The database has rolled the batch back, so that a retry writes nothing twice.
            Err(StoreError::Busy { .. }) if left > 0 => {}
            Err(error) => {
                let error = Arc::new(error);
                return (0..count).map(|_| Err(Arc::clone(&error))).collect();
            }
        }
    }
}

/// A buffer of reads that are logged after the response. No reader waits for a transaction, and repeated reads within the buffering
/// period become one record with a count.
#[derive(Clone)]
pub(crate) struct ReadBuffer {
    queue: mpsc::Sender<TimedReading>,
    incoming: Arc<tokio::sync::Mutex<mpsc::Receiver<TimedReading>>>,
}

impl Default for ReadBuffer {
    fn default() -> Self {
        let (queue, incoming) = mpsc::channel(READINGS_WAITING_MAX);
        Self { queue, incoming: Arc::new(tokio::sync::Mutex::new(incoming)) }
    }
}

impl ReadBuffer {
    async fn record(&self, readings: Vec<TimedReading>) {
        for reading in readings {
            // The channel stays open as long as the handle exists, so that the send cannot fail.
            let _ = self.queue.send(reading).await;
        }
    }

    /// Writes buffered reads, and at `stop` the remaining ones. While the database is unavailable, reads are buffered and counted,
    /// up to [`READINGS_PENDING_MAX`] distinct reads. Then readers wait.
    async fn run(self, store: Store, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("credential-read-log");
        let mut incoming = self.incoming.lock().await;
        let mut pending = Pending::default();
        loop {
            if pending.is_empty() {
                tokio::select! {
                    () = stop.cancelled() => {}
                    first = incoming.recv() => match first {
                        Some(reading) => pending.record(reading),
                        None => return,
                    },
                }
            }
            pending.gather(&mut incoming, READINGS_EVERY, &stop).await;
            let ending = stop.is_cancelled();
            while ending && let Ok(left) = incoming.try_recv() {
                pending.record(left);
            }
            if let Err(error) = pending.write(&store).await {
                tracing::warn!(%error, readings = pending.readings.len(), "reads of credentials could not be written to \
                 the audit log yet");
                if !ending {
                    pending.gather(&mut incoming, RETRY_DELAY, &stop).await;
                }
            }
            if ending && incoming.is_empty() {
                return;
            }
        }
    }
}

/// Reads that are not logged yet. Repeated reads of a version by one actor are one entry with the first time, the last time and a
/// count.
#[derive(Default)]
struct Pending {
    readings: Vec<(Reading, i64, i64, u64)>,
    indexes: HashMap<Reading, usize>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.readings.is_empty()
    }

    fn record(&mut self, (at_us, reading): TimedReading) {
        match self.indexes.get(&reading) {
            Some(index) => {
                let (_, _, last, count) = &mut self.readings[*index];
                (*last, *count) = (at_us.max(*last), *count + 1);
            }
            None => {
                self.indexes.insert(reading.clone(), self.readings.len());
                self.readings.push((reading, at_us, at_us, 1));
            }
        }
    }

    /// Receives reads until the buffering period ends or the buffer is full.
    async fn gather(
        &mut self,
        incoming: &mut mpsc::Receiver<TimedReading>,
        within: Duration,
        stop: &CancellationToken,
    ) {
        let until = tokio::time::Instant::now() + within;
        let mut received = Vec::new();
        while !stop.is_cancelled() {
            let room = READINGS_PENDING_MAX.saturating_sub(self.readings.len());
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep_until(until) => return,
                count = incoming.recv_many(&mut received, room), if room > 0 => if count == 0 { return },
            }
            received.drain(..).for_each(|reading| self.record(reading));
        }
    }

    /// Writes the pending reads, one batch per transaction. Reads that could not be written stay in the buffer.
    async fn write(&mut self, store: &Store) -> Result<(), StoreError> {
        let mut written = 0;
        let outcome = loop {
            if written == self.readings.len() {
                break Ok(());
            }
            let batch = &self.readings[written..self.readings.len().min(written + READINGS_BATCH)];
            match log(store, batch.iter().map(audit_event).collect()).await {
                Ok(()) => written += batch.len(),
                Err(error) => break Err(error),
            }
        };
        self.readings.drain(..written);
        let indexes = self.readings.iter().enumerate();
        self.indexes = indexes.map(|(index, (reading, ..))| (reading.clone(), index)).collect();
        outcome
    }
}

async fn log(store: &Store, events: Vec<AuditEvent>) -> Result<(), StoreError> {
    store.write_indexed("credential_reads", move |tx| store::audit(tx, events).boxed()).await
}

fn audit_event((reading, first, last, count): &(Reading, i64, i64, u64)) -> AuditEvent {
    let details = match count {
        1 => json!({ "version": reading.version }),
        _ => json!({ "version": reading.version, "times": count, "until_us": last }),
    };
    AuditEvent {
        at_us: *first,
        actor: reading.actor.clone(),
        action: "credential.read",
        resource: format!("credential{}", reading.name),
        details,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    /// All reads are queued before the test waits. The first transaction may start with some of the reads; the second one writes
    /// the others.
    #[tokio::test]
    async fn reads_that_wait_share_a_transaction() {
        const READS: usize = 200;
        let database = testbed::Database::sqlite();
        let store = database.open().await;
        let log = ReadLog::open(ReadAudit::Durable, &store);
        let reading = Reading { actor: "a".to_owned(), name: "/a".to_owned(), version: Uuid::nil() };
        let received = join_all((0..READS).map(|at| log.record(vec![(at as i64, reading.clone())]))).await;
        assert!(received.iter().all(Result::is_ok));
        let filter = store::AuditFilter::default();
        let rows = store.audit_page(&filter, None, 1_000).await.unwrap().rows;
        let rows = rows.iter().filter(|row| row.action == "credential.read").count();
        assert!(rows <= 2, "{rows} transactions, one row each, for {READS} reads");
    }
}
