//! Buffering of records and writing them to disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::folder::{Folder, RecordsError};
use super::head::SegmentHead;
use super::record::{SignatureRecord, UnwrittenRecord};
use crate::refusal::Refusal;

/// Maximum signatures whose records are not yet on disk: about one second of work of a fast node. A record takes 250 bytes.
const WAITING_MAX: usize = 65_536;
/// Interval of writes to disk. A crash of the process may lose the records of one interval.
const WRITE_EVERY: Duration = Duration::from_millis(200);
/// Maximum records of a segment.
const RECORDS_MAX: usize = 65_536;
/// Maximum time that a segment stays open. When the segment closes, its head is logged.
const CLOSE_AFTER: Duration = Duration::from_secs(60);

coded::named! {
    /// Behavior while the record queue is full, because the disk is full, broken or slow.
    pub enum WhenFull: "choice" {
        /// Requests are rejected.
        Refuse => "refuse",
        /// Signatures are made without a record, and counted.
        Lose => "lose",
    }
}

/// Options of signature records: folder, limits, and behavior while the queue is full.
#[derive(Clone, Debug)]
pub struct RecordsOptions {
    /// Folder of the records.
    pub folder: PathBuf,
    /// Maximum signatures whose records are not on disk.
    pub waiting_max: usize,
    /// Behavior for further signatures when `waiting_max` is reached.
    pub when_full: WhenFull,
    /// Maximum records of a segment.
    pub records_max: usize,
    /// Time after which a segment is closed.
    pub close_after: Duration,
}

impl RecordsOptions {
    /// Creates options for this folder, with default limits.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            waiting_max: WAITING_MAX,
            when_full: WhenFull::Refuse,
            records_max: RECORDS_MAX,
            close_after: CLOSE_AFTER,
        }
    }
}

/// A recorder that writes a record of every signature. Clones share one queue and one folder.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
}

struct Shared {
    options: RecordsOptions,
    pending: Mutex<Vec<UnwrittenRecord>>,
    /// Slots in use: by signatures in progress, and by records that are not on disk.
    slots_in_use: AtomicUsize,
    written: AtomicU64,
    failures: AtomicU64,
    lost: AtomicU64,
    disk: Mutex<Disk>,
    newest: Mutex<Option<SegmentHead>>,
}

struct Disk {
    folder: Folder,
    opened: Option<Instant>,
    /// Lines that could not be written because of a disk error.
    unwritten_lines: Vec<String>,
}

/// Slot in the queue of records. Dropping the slot without a record frees it.
pub(crate) struct Slot {
    shared: Option<Arc<Shared>>,
}

impl Recorder {
    /// Opens or creates the folder. Continues a segment that an earlier process left open.
    ///
    /// # Errors
    /// [`RecordsError`]
    pub fn open(options: RecordsOptions) -> Result<Self, RecordsError> {
        let (folder, newest) = Folder::open(&options.folder)?;
        let opened = (folder.records() > 0).then(Instant::now);
        let shared = Shared {
            options,
            pending: Mutex::default(),
            slots_in_use: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            disk: Mutex::new(Disk { folder, opened, unwritten_lines: Vec::new() }),
            newest: Mutex::new(newest),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Takes a slot for the record of one signature; `None` if the signature is permitted without a record.
    ///
    /// # Errors
    /// Too many records are not on disk: the signature must not be made.
    pub(crate) fn slot(&self) -> Result<Option<Slot>, Refusal> {
        let shared = &self.shared;
        if shared.slots_in_use.fetch_add(1, Relaxed) < shared.options.waiting_max {
            return Ok(Some(Slot { shared: Some(Arc::clone(shared)) }));
        }
        shared.slots_in_use.fetch_sub(1, Relaxed);
        match shared.options.when_full {
            WhenFull::Refuse => Err(Refusal::Records),
            WhenFull::Lose => {
                shared.lost.fetch_add(1, Relaxed);
                Ok(None)
            }
        }
    }

    /// Returns the number of records that this process has written to disk.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.shared.written.load(Relaxed)
    }

    /// Returns the number of failed writes.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Relaxed)
    }

    /// Returns the number of signatures without a record.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Relaxed)
    }

    /// Returns the number of slots in use, and the total number of slots.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.shared.slots_in_use.load(Relaxed), self.shared.options.waiting_max)
    }

    /// Writes the pending records, and closes the segment when it is due. Blocks on the disk.
    ///
    /// # Errors
    /// [`RecordsError`]: the records stay pending for the next call.
    pub fn write(&self) -> Result<(), RecordsError> {
        let written = self.shared.write();
        if written.is_err() {
            self.shared.failures.fetch_add(1, Relaxed);
        }
        written
    }

    /// Closes the open segment, if it has records.
    ///
    /// # Errors
    /// [`RecordsError`]
    pub fn close(&self) -> Result<(), RecordsError> {
        self.write()?;
        self.shared.close(&mut self.shared.disk.lock())
    }

    /// Writes records periodically until `stop` is cancelled, and then the remaining ones.
    #[crate::boxed]
    pub async fn run(self, stop: CancellationToken) {
        let _live = telemetry::tasks::guard("keyless-records");
        let mut is_failing = false;
        loop {
            let is_stopped = stop.run_until_cancelled(tokio::time::sleep(WRITE_EVERY)).await.is_none();
            let own = self.clone();
            let work = move || if is_stopped { own.close() } else { own.write() };
            let written = tokio::task::spawn_blocking(work).await;
            let fails = !matches!(written, Ok(Ok(())));
            if let Ok(Err(error)) = written
                && !is_failing
            {
                tracing::error!(%error, "cannot write signature records: check the disk and its free space");
            }
            if is_failing && !fails {
                tracing::info!("writing signature records works again");
            }
            is_failing = fails;
            if is_stopped {
                return;
            }
        }
    }

    /// Returns the newest head. Its hash chain covers all earlier segments.
    #[must_use]
    pub fn newest(&self) -> Option<SegmentHead> {
        self.shared.newest.lock().clone()
    }
}

impl Shared {
    fn write(&self) -> Result<(), RecordsError> {
        // The lock keeps the order of the records.
        let mut disk = self.disk.lock();
        let pending = std::mem::take(&mut *self.pending.lock());
        disk.unwritten_lines.extend(pending.iter().map(|pending| {
            // Numbers and strings always serialize.
            serde_json::to_string(&SignatureRecord::of(pending)).unwrap_or_default()
        }));
        drop(pending);
        let Disk { folder, opened, unwritten_lines } = &mut *disk;
        if !unwritten_lines.is_empty() {
            folder.append(unwritten_lines)?;
            self.written.fetch_add(unwritten_lines.len() as u64, Relaxed);
            self.slots_in_use.fetch_sub(unwritten_lines.len(), Relaxed);
            unwritten_lines.clear();
            opened.get_or_insert_with(Instant::now);
        }
        let is_old = opened.is_some_and(|opened| opened.elapsed() >= self.options.close_after);
        if is_old || folder.records() >= self.options.records_max {
            self.close(&mut disk)?;
        }
        Ok(())
    }

    fn close(&self, disk: &mut Disk) -> Result<(), RecordsError> {
        if disk.folder.records() == 0 {
            return Ok(());
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let head = disk.folder.close(u64::try_from(now.as_micros()).unwrap_or(u64::MAX))?;
        disk.opened = None;
        let (segment, records, hash) = (head.segment, head.records, head.hash());
        // If logs leave the host, this copy of the head authenticates the records.
        tracing::info!(
            segment,
            records,
            root = head.root,
            head = hash,
            "closed a segment of signature records"
        );
        *self.newest.lock() = Some(head);
        Ok(())
    }
}

impl Slot {
    pub(super) fn fill(mut self, pending: UnwrittenRecord) {
        if let Some(shared) = self.shared.take() {
            shared.pending.lock().push(pending);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.slots_in_use.fetch_sub(1, Relaxed);
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("options", &self.shared.options).finish_non_exhaustive()
    }
}
