//! A writer of observations: a bounded channel, one task, one transaction per batch.
//!
//! A slow database slows down the senders; nothing is dropped, and memory is bounded. If the database is unreachable, busy or full,
//! the writer retries the batch up to a time limit. Retries are harmless, because [`crate::Scans::record`] is idempotent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use crate::inventory::handle::Scans;
use crate::inventory::model::{NewObservation, Recorded};
use crate::store::Store;
use db::StoreError;

/// Maximum rows of one transaction. Larger transactions cost memory and latency, and are hardly faster: on SQLite, 50 rows reach
/// three quarters of the rate of 1,000.
const ROWS_MAX: usize = 500;

/// Maximum time that a row waits for other rows to share its transaction.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum rows in the channel: two batches, so that one is filled while the other is stored. At 8 KiB for a row with its chain, a
/// full channel uses 8 MiB.
const QUEUE_ROWS_MAX: usize = 2 * ROWS_MAX;

/// Maximum time for which a database may be unreachable, busy or full before the scan is aborted. A failover or a restart takes
/// less.
const TIMEOUT: Duration = Duration::from_secs(60);

/// First pause between two attempts.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Callback after each acknowledged transaction, with its number of rows and its duration. The callback must not block.
#[derive(Clone)]
pub struct OnFlush(pub Arc<dyn Fn(usize, Duration) + Send + Sync>);

impl std::fmt::Debug for OnFlush {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnFlush").finish_non_exhaustive()
    }
}

/// Batch size, queue size and retry time of a [`Writer`].
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Maximum rows of a transaction; at least 1.
    pub rows_max: usize,
    /// Maximum time that a row waits for other rows to share its transaction.
    pub flush_interval: Duration,
    /// Maximum rows in the channel; at least 1. When it is full, [`Sender::send`] waits.
    pub queue_rows_max: usize,
    /// Time for which a transient error is retried, counted from its first occurrence.
    pub retry_timeout: Duration,
    /// Called after each transaction.
    pub on_flush: Option<OnFlush>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            rows_max: ROWS_MAX,
            flush_interval: FLUSH_INTERVAL,
            queue_rows_max: QUEUE_ROWS_MAX,
            retry_timeout: TIMEOUT,
            on_flush: None,
        }
    }
}

/// Status of the writer, for the progress bar.
#[derive(Clone, Debug)]
pub enum Status {
    /// The last attempt succeeded.
    Healthy,
    /// The database is unreachable, busy or full. The batch is retried.
    Waiting {
        /// Time of the first failure.
        since: Instant,
        /// The last error of the database.
        error: Arc<str>,
    },
}

/// Counts and times of a [`Writer`] since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Sum of the results of [`crate::Scans::record`].
    pub recorded: Recorded,
    /// Number of acknowledged transactions.
    pub batches: u64,
    /// Number of acknowledged rows: new ones and duplicates.
    pub stored: u64,
    /// Number of attempts that failed and were repeated.
    pub retries: u64,
    /// Total time of acknowledged transactions.
    pub flush_time: Duration,
    /// Longest time of an acknowledged transaction.
    pub flush_time_max: Duration,
}

/// The writer stopped before all observations were stored.
#[derive(Debug, thiserror::Error)]
#[error(
    "{not_stored} observations were not stored ({} were): {source}; repeat with --resume once the database is available",
    totals.stored
)]
pub struct WriterError {
    /// Number of rows that [`Sender::send`] accepted and that were possibly not stored.
    pub not_stored: u64,
    /// Totals up to the time when the writer stopped.
    pub totals: Totals,
    /// The last error of the database.
    #[source]
    pub source: StoreError,
}

/// Sender of observations to the writer. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sender {
    rows: mpsc::Sender<NewObservation>,
}

impl Sender {
    /// Sends one observation. Waits while the channel is full.
    ///
    /// # Errors
    /// Returns the observation when the writer has given up or was finished; [`Writer::finish`] returns the reason.
    ///
    /// # Cancellation
    /// Dropping the future sends nothing.
    #[crate::boxed]
    pub async fn send(&self, observation: NewObservation) -> Result<(), Box<NewObservation>> {
        self.rows.send(observation).await.map_err(|refused| Box::new(refused.0))
    }

    /// Resolves when the writer accepts no more observations.
    #[crate::boxed]
    pub async fn closed(&self) {
        self.rows.closed().await;
    }
}

/// The writing task. If dropped without [`Writer::finish`], it runs until the last [`Sender`] is dropped.
#[derive(Debug)]
pub struct Writer {
    task: JoinHandle<Result<(), WriterError>>,
    status: watch::Receiver<Status>,
    totals: Arc<Mutex<Totals>>,
    finish: CancellationToken,
}

impl Writer {
    /// Starts a writer for the observations of `scan`, which must have begun.
    #[must_use]
    pub fn start(store: Store, scan: Uuid, options: WriterOptions) -> (Sender, Writer) {
        let (rows, queue) = mpsc::channel(options.queue_rows_max.max(1));
        let (status_sender, status) = watch::channel(Status::Healthy);
        let totals = Arc::new(Mutex::new(Totals::default()));
        let finish = CancellationToken::new();
        let task = WriterTask {
            store,
            scan,
            queue,
            status: status_sender,
            totals: Arc::clone(&totals),
            finish: finish.clone(),
            options,
        };
        (Sender { rows }, Writer { task: tokio::spawn(task.run()), status, totals, finish })
    }

    /// Returns a receiver of the writer's current and later status.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Returns the totals of all transactions acknowledged so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        *self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the channel, stores the accepted observations, and returns the totals. A waiting [`Sender::send`] gets its
    /// observation back.
    ///
    /// # Errors
    /// [`WriterError`] when the database rejected a batch, or was unreachable for longer than the time limit.
    pub async fn finish(self) -> Result<Totals, WriterError> {
        self.finish.cancel();
        match self.task.await {
            Ok(Ok(())) => Ok(*self.totals.lock().unwrap_or_else(PoisonError::into_inner)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(WriterError {
                not_stored: 0,
                totals: *self.totals.lock().unwrap_or_else(PoisonError::into_inner),
                source: StoreError::Closed,
            }),
        }
    }
}

struct WriterTask {
    store: Store,
    scan: Uuid,
    queue: mpsc::Receiver<NewObservation>,
    status: watch::Sender<Status>,
    totals: Arc<Mutex<Totals>>,
    finish: CancellationToken,
    options: WriterOptions,
}

impl WriterTask {
    async fn run(mut self) -> Result<(), WriterError> {
        let _live = telemetry::tasks::guard("store-writer");
        loop {
            let batch = self.next_batch().await;
            if batch.is_empty() {
                return Ok(());
            }
            let batch: Arc<[NewObservation]> = batch.into();
            if let Err(source) = self.store_with_retry(&batch).await {
                let waiting = self.discard_queued();
                let totals = *self.totals.lock().unwrap_or_else(PoisonError::into_inner);
                return Err(WriterError { not_stored: batch.len() as u64 + waiting, totals, source });
            }
        }
    }

    /// Returns the next batch, once it is full or its first row has waited for the flush interval. Empty when the channel is closed
    /// and has no more rows.
    async fn next_batch(&mut self) -> Vec<NewObservation> {
        let rows_max = self.options.rows_max.max(1);
        let mut batch = Vec::new();
        let mut flush_at = None;
        while batch.len() < rows_max {
            let room = rows_max - batch.len();
            let finishing = self.queue.is_closed();
            tokio::select! {
                biased;
                () = self.finish.cancelled(), if !finishing => self.queue.close(),
                taken = self.queue.recv_many(&mut batch, room) => {
                    if taken == 0 {
                        break;
                    }
                    flush_at.get_or_insert_with(|| tokio::time::Instant::now() + self.options.flush_interval);
                }
                () = until(flush_at) => break,
            }
        }
        batch
    }

    async fn store_with_retry(&self, batch: &Arc<[NewObservation]>) -> Result<(), StoreError> {
        let mut trouble: Option<(Instant, tokio::time::Instant)> = None;
        let mut pause = PAUSE_MIN;
        loop {
            let began = Instant::now();
            match Scans::of(&self.store).record_shared(self.scan, Arc::clone(batch)).await {
                Ok(recorded) => {
                    self.count_batch(batch.len(), recorded, began.elapsed());
                    if trouble.is_some() {
                        info!(rows = batch.len(), "the database is available again");
                        self.status.send_replace(Status::Healthy);
                    }
                    return Ok(());
                }
                Err(error) if error.is_transient() => {
                    let (since, clock) = *trouble.get_or_insert_with(|| {
                        warn!(error = &error as &dyn std::error::Error, "waiting for the database");
                        (Instant::now(), tokio::time::Instant::now())
                    });
                    if clock.elapsed() >= self.options.retry_timeout {
                        return Err(error);
                    }
                    self.totals.lock().unwrap_or_else(PoisonError::into_inner).retries += 1;
                    self.status.send_replace(Status::Waiting { since, error: error.to_string().into() });
                    tokio::time::sleep(pause.min(self.options.retry_timeout.saturating_sub(clock.elapsed())))
                        .await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn count_batch(&self, rows: usize, recorded: Recorded, took: Duration) {
        if let Some(OnFlush(callback)) = &self.options.on_flush {
            callback(rows, took);
        }
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.recorded += recorded;
        totals.batches += 1;
        totals.stored += recorded.inserted + recorded.duplicates;
        totals.flush_time += took;
        totals.flush_time_max = totals.flush_time_max.max(took);
    }

    /// Closes the channel and counts the discarded observations.
    fn discard_queued(&mut self) -> u64 {
        self.queue.close();
        let mut rows = 0;
        while self.queue.try_recv().is_ok() {
            rows += 1;
        }
        rows
    }
}

/// Waits until a time. Never resolves for `None`.
async fn until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
