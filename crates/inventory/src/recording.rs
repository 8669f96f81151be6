//! Stores the observations of a running scan in the database.

use std::time::Duration;

use scan::Observation;
use store::{Sender, Status, Store, Totals, Writer, WriterError, WriterOptions};
use tokio::sync::watch;
use uuid::Uuid;

use crate::history::Samples;
use crate::record::Recorder;

/// Time limit for storing the last rows of an interrupted scan.
pub const LAST_ROWS_LIMIT: Duration = Duration::from_secs(1);

/// A recorder of the observations of one scan: converts them to rows, and passes the rows to its own writer.
pub struct Recording {
    recorder: Recorder,
    sender: Sender,
    writer: Writer,
    gave_up: bool,
}

/// End of a scan: complete or interrupted. It determines the time limit for storing the last rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ScanEnd {
    /// All targets were probed. Waits for the last rows as long as the writer retries.
    Complete,
    /// The scan was interrupted. Waits for the last rows at most [`LAST_ROWS_LIMIT`].
    Interrupted,
}

/// Reason why the last rows of a scan were not stored.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The database did not store the rows of an interrupted scan within [`LAST_ROWS_LIMIT`].
    #[error("the database did not store the last results before the timeout")]
    OutOfTime,
    /// The writer failed.
    #[error(transparent)]
    Writer(#[from] WriterError),
}

impl Recording {
    /// Starts recording into `scan`, which must exist in the database. `retry_timeout` is the time for which the writer retries while
    /// the database is unavailable; `samples` measures the writer's transactions.
    #[must_use]
    pub fn start(store: Store, scan: Uuid, retry_timeout: Duration, samples: Option<&Samples>) -> Self {
        let on_flush = samples.map(Samples::on_flush);
        let options = WriterOptions { retry_timeout, on_flush, ..WriterOptions::default() };
        let (sender, writer) = Writer::start(store, scan, options);
        Self { recorder: Recorder::default(), sender, writer, gave_up: false }
    }

    /// Records an observation. `detail` is a JSON object with the data that has no column. Waits while the writer's queue is
    /// full, until `give_up` completes. Returns false when the observation was not queued; later observations are not queued
    /// either.
    pub async fn record(
        &mut self,
        observation: &Observation,
        detail: String,
        give_up: impl Future<Output = ()>,
    ) -> bool {
        if self.gave_up {
            return false;
        }
        let row = self.recorder.row(observation, detail);
        let queued = tokio::select! {
            biased;
            queued = self.sender.send(row) => queued.is_ok(),
            () = give_up => false,
        };
        self.gave_up = !queued;
        queued
    }

    /// Returns a channel with the current state of the writer.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.writer.status()
    }

    /// Stores the rows that are still queued.
    ///
    /// # Errors
    /// [`RecordingError`].
    pub async fn finish(self, end: ScanEnd) -> Result<Totals, RecordingError> {
        let Self { sender, writer, .. } = self;
        drop(sender);
        match end {
            ScanEnd::Complete => Ok(writer.finish().await?),
            ScanEnd::Interrupted => match tokio::time::timeout(LAST_ROWS_LIMIT, writer.finish()).await {
                Ok(finished) => Ok(finished?),
                Err(_) => Err(RecordingError::OutOfTime),
            },
        }
    }
}
