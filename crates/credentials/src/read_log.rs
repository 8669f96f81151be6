//! The log of readings: who read which version, written in batches, before the value is answered or a moment later.

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

/// Answers that wait for their record; past it readers wait. One answer has up to 1,000 versions.
const ANSWERS_WAITING_MAX: usize = 4_096;
/// Answers whose records share a transaction.
const ANSWERS_BATCH: usize = 512;
/// Transactions under way: all that are read while one commits share the next, and so one flush of the disk.
const AT_ONCE: usize = 1;
/// A transaction that lost against another is tried so often.
const ATTEMPTS: usize = 3;

/// Buffered readings that wait to be logged; past it readers wait.
const READINGS_WAITING_MAX: usize = 8_192;
/// Readings logged by one transaction: a whole lookup of 1,000 names fits.
const READINGS_BATCH: usize = 1_024;
/// How long a buffered reading waits to be logged, at most: what a crash loses.
const READINGS_EVERY: Duration = Duration::from_millis(200);
/// Different buffered readings that are kept while the database takes nothing, some 200 bytes each; past it readers wait.
const READINGS_PENDING_MAX: usize = 65_536;
/// After a transaction that failed, before the next.
const AGAIN: Duration = Duration::from_secs(1);

/// A read: the actor and the version.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Reading {
    pub(crate) actor: String,
    pub(crate) name: String,
    pub(crate) version: Uuid,
}

/// A reading and its time, µs.
type TimedReading = (i64, Reading);

/// The log of readings, as [`ReadAudit`] says.
#[derive(Clone)]
pub(crate) enum ReadLog {
    Durable(Batcher<Vec<TimedReading>, Result<(), Arc<StoreError>>>),
    Buffered(ReadBuffer),
}

impl ReadLog {
    /// Starts the task that writes durable records; buffered ones are written by [`Self::run`].
    pub(crate) fn open(mode: ReadAudit, store: &Store) -> Self {
        if mode == ReadAudit::Buffered {
            return Self::Buffered(ReadBuffer::default());
        }
        let batches =
            BatcherOptions { batch_max: ANSWERS_BATCH, queue_max: ANSWERS_WAITING_MAX, at_once: AT_ONCE };
        let store = store.clone();
        Self::Durable(Batcher::new("credential-read-log", batches, move |answers| {
            log_answers(store.clone(), answers).boxed()
        }))
    }

    /// Returns once the readings of one answer are in the log, or in the buffer where the deployment asked for that.
    ///
    /// # Errors
    /// [`CredentialError::Unlogged`] when the log was not written: the answer must not leave the process.
    pub(crate) async fn note(&self, readings: Vec<TimedReading>) -> Result<(), CredentialError> {
        match self {
            _ if readings.is_empty() => Ok(()),
            Self::Durable(batcher) => match batcher.submit(readings).await {
                Ok(written) => written.map_err(CredentialError::Unlogged),
                Err(_) => Err(CredentialError::Internal("the queue of the read log is gone".to_owned())),
            },
            Self::Buffered(buffer) => {
                buffer.note(readings).await;
                Ok(())
            }
        }
    }

    /// Writes buffered reads until `stop`, then the rest.
    pub(crate) async fn run(self, store: Store, stop: CancellationToken) {
        if let Self::Buffered(buffer) = self {
            buffer.run(store, stop).await;
        }
    }
}

/// One transaction for all answers that wait; each is told its outcome. Who read the same version several times within them has one
/// record with the count.
async fn log_answers(store: Store, answers: Vec<Vec<TimedReading>>) -> Vec<Result<(), Arc<StoreError>>> {
    let count = answers.len();
    let mut pending = Pending::default();
    answers.into_iter().flatten().for_each(|reading| pending.note(reading));
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        match pending.write(&store).await {
            Ok(()) => return vec![Ok(()); count],
            // The database undid the batch: nothing of it can be there.
            Err(StoreError::Busy { .. }) if left > 0 => {}
            Err(error) => {
                let error = Arc::new(error);
                return (0..count).map(|_| Err(Arc::clone(&error))).collect();
            }
        }
    }
}

/// Readings that are answered before they are logged: gathered, so that no reader waits for a transaction, and told with their
/// count where somebody read the same again within the time that they are gathered.
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
    async fn note(&self, readings: Vec<TimedReading>) {
        for reading in readings {
            // Both ends live as long as the handle does.
            let _ = self.queue.send(reading).await;
        }
    }

    /// Writes what is noted, and at `stop` what is left. While the database takes nothing, what is noted is kept and counted
    /// together, up to [`READINGS_PENDING_MAX`] different readings; then readers wait.
    async fn run(self, store: Store, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("credential-read-log");
        let mut incoming = self.incoming.lock().await;
        let mut pending = Pending::default();
        loop {
            if pending.is_empty() {
                tokio::select! {
                    () = stop.cancelled() => {}
                    first = incoming.recv() => match first {
                        Some(reading) => pending.note(reading),
                        None => return,
                    },
                }
            }
            pending.gather(&mut incoming, READINGS_EVERY, &stop).await;
            let ending = stop.is_cancelled();
            while ending && let Ok(left) = incoming.try_recv() {
                pending.note(left);
            }
            if let Err(error) = pending.write(&store).await {
                tracing::warn!(%error, readings = pending.readings.len(), "readings of credentials are not logged yet");
                if !ending {
                    pending.gather(&mut incoming, AGAIN, &stop).await;
                }
            }
            if ending && incoming.is_empty() {
                return;
            }
        }
    }
}

/// Readings that are not logged yet: one for who read the same version more than once, from the first time to the last,
/// with the count.
#[derive(Default)]
struct Pending {
    readings: Vec<(Reading, i64, i64, u64)>,
    places: HashMap<Reading, usize>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.readings.is_empty()
    }

    fn note(&mut self, (at_us, reading): TimedReading) {
        match self.places.get(&reading) {
            Some(place) => {
                let (_, _, last, count) = &mut self.readings[*place];
                (*last, *count) = (at_us.max(*last), *count + 1);
            }
            None => {
                self.places.insert(reading.clone(), self.readings.len());
                self.readings.push((reading, at_us, at_us, 1));
            }
        }
    }

    /// Takes in what comes within this time, as long as there is room.
    async fn gather(
        &mut self,
        incoming: &mut mpsc::Receiver<TimedReading>,
        within: Duration,
        stop: &CancellationToken,
    ) {
        let until = tokio::time::Instant::now() + within;
        let mut noted = Vec::new();
        while !stop.is_cancelled() {
            let room = READINGS_PENDING_MAX.saturating_sub(self.readings.len());
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep_until(until) => return,
                count = incoming.recv_many(&mut noted, room), if room > 0 => if count == 0 { return },
            }
            noted.drain(..).for_each(|reading| self.note(reading));
        }
    }

    /// Writes them, a batch a transaction; what is not written stays.
    async fn write(&mut self, store: &Store) -> Result<(), StoreError> {
        let mut written = 0;
        let outcome = loop {
            if written == self.readings.len() {
                break Ok(());
            }
            let batch = &self.readings[written..self.readings.len().min(written + READINGS_BATCH)];
            match log(store, batch.iter().map(told).collect()).await {
                Ok(()) => written += batch.len(),
                Err(error) => break Err(error),
            }
        };
        self.readings.drain(..written);
        let places = self.readings.iter().enumerate();
        self.places = places.map(|(place, (reading, ..))| (reading.clone(), place)).collect();
        outcome
    }
}

async fn log(store: &Store, events: Vec<AuditEvent>) -> Result<(), StoreError> {
    store.write_points("credential_reads", move |tx| store::audit(tx, events).boxed()).await
}

fn told((reading, first, last, count): &(Reading, i64, i64, u64)) -> AuditEvent {
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
