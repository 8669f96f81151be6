//! The log of readings: who read which version, written in batches.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, Store, StoreError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Readings that wait to be logged; past it readers wait.
const READINGS_WAITING_MAX: usize = 8_192;
/// Readings logged by one transaction.
const READINGS_BATCH: usize = 512;
/// How long a reading waits to be logged, at most: what a crash loses.
const READINGS_EVERY: Duration = Duration::from_millis(200);
/// Different readings that are kept while the database takes nothing, some 200 octets each; past it readers wait.
const READINGS_PENDING_MAX: usize = 65_536;
/// After a transaction that failed, before the next.
const AGAIN: Duration = Duration::from_secs(1);

/// Who read what.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Reading {
    pub(crate) actor: String,
    pub(crate) name: String,
    pub(crate) version: Uuid,
}

/// Readings on their way into the log: gathered, so that no reader waits for a transaction, and told with their count where
/// somebody read the same again within the time that they are gathered.
#[derive(Clone)]
pub(crate) struct ReadLog {
    queue: mpsc::Sender<(i64, Reading)>,
    incoming: Arc<tokio::sync::Mutex<mpsc::Receiver<(i64, Reading)>>>,
}

impl Default for ReadLog {
    fn default() -> Self {
        let (queue, incoming) = mpsc::channel(READINGS_WAITING_MAX);
        Self { queue, incoming: Arc::new(tokio::sync::Mutex::new(incoming)) }
    }
}

impl ReadLog {
    pub(crate) async fn note(&self, reading: (i64, Reading)) {
        // Both ends live as long as the handle does.
        let _ = self.queue.send(reading).await;
    }

    /// Writes what is noted, and at `stop` what is left. While the database takes nothing, what is noted is kept and counted
    /// together, up to [`READINGS_PENDING_MAX`] different readings; then readers wait.
    pub(crate) async fn run(self, store: Store, stop: CancellationToken) {
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

    fn note(&mut self, (at_us, reading): (i64, Reading)) {
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
        incoming: &mut mpsc::Receiver<(i64, Reading)>,
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
