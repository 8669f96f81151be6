//! The audit log of the proxy: a file of events in the format of `bulla audit export`. Each event contains the hash of the previous
//! one. A request waits until its event is written, so that no credential is sent without an event.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use audit_proof::event::{Event, format_export_line, genesis, parse_export_line};
use http_relay::access_log::private;
use inbound::ServiceTasks;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};
use x509::Fingerprint;

/// Maximum queued events. Further requests wait for a slot.
const QUEUE: usize = 4_096;
/// Maximum events of one write.
const BATCH: usize = 512;
/// Timeout of writing an event. After it, the request is refused.
const WITHIN: Duration = Duration::from_secs(5);
/// Maximum bytes of a line that the proxy writes.
const LINE_MAX: u64 = 64 << 10;

/// Options of the proxy's audit log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuditOptions {
    /// Path of the file. It is created for its owner only.
    pub file: PathBuf,
    /// Whether each write is synced to disk, so that a power failure loses no event.
    pub sync: bool,
}

/// Content of an audit event: actor, action, resource and details.
#[derive(Clone, Debug)]
pub(crate) struct AuditEvent {
    pub(crate) actor: String,
    pub(crate) action: String,
    pub(crate) resource: String,
    pub(crate) details: Value,
}

/// The event could not be written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the audit log of the proxy cannot be written")]
pub(crate) struct AuditWriteError;

/// The audit log of the proxy. Clones share the file.
#[derive(Clone)]
pub(crate) struct AuditLog {
    queue: mpsc::Sender<Waiting>,
    tasks: ServiceTasks,
    /// Events of ended requests that could not be written.
    lost: Counter,
}

#[derive(Debug)]
struct Waiting {
    event: AuditEvent,
    /// The request that waits for the event; `None` for the outcome of an ended request.
    written: Option<oneshot::Sender<Result<(), AuditWriteError>>>,
}

impl AuditLog {
    /// Opens the file, and returns the log and the future of its writer. The writer ends when the last clone of the log is dropped.
    ///
    /// # Errors
    /// The file cannot be written, another process writes to it, or its last line is not an event.
    pub(crate) fn open(
        options: &AuditOptions,
        reopen: Arc<Notify>,
        tasks: &ServiceTasks,
        lost: &Counter,
    ) -> io::Result<(Self, impl Future<Output = ()> + Send + use<>)> {
        let chain = Chain::open(options.clone())?;
        let (queue, waiting) = mpsc::channel(QUEUE);
        let log = Self { queue, tasks: tasks.clone(), lost: lost.clone() };
        Ok((log, keep(chain, waiting, reopen, lost.clone())))
    }

    /// Waits until `event` is written.
    ///
    /// # Errors
    /// [`AuditWriteError`]: the audited action must not be done.
    pub(crate) async fn record(&self, event: AuditEvent) -> Result<(), AuditWriteError> {
        let (written, answer) = oneshot::channel();
        let recorded = async {
            let written = Some(written);
            self.queue.send(Waiting { event, written }).await.map_err(|_| AuditWriteError)?;
            answer.await.unwrap_or(Err(AuditWriteError))
        };
        tokio::time::timeout(WITHIN, recorded).await.unwrap_or(Err(AuditWriteError))
    }

    /// Writes the event of an ended request, without waiting for it.
    pub(crate) fn note(&self, event: AuditEvent) {
        match self.queue.try_send(Waiting { event, written: None }) {
            Ok(()) => {}
            // At most one task for each request: new requests wait for the same queue.
            Err(TrySendError::Full(waiting)) => {
                let queue = self.queue.clone();
                self.tasks.spawn(async move {
                    let _live = telemetry::tasks::guard("proxy-audit-outcome");
                    let _ = queue.send(waiting).await;
                });
            }
            Err(TrySendError::Closed(_)) => {
                self.lost.inc();
            }
        }
    }
}

/// Writes batches on a separate thread, until the last clone of the log is dropped.
async fn keep(mut chain: Chain, mut queue: mpsc::Receiver<Waiting>, reopen: Arc<Notify>, lost: Counter) {
    let _live = telemetry::tasks::guard("proxy-audit");
    let runtime = Handle::current();
    let work = tokio::task::spawn_blocking(move || {
        let mut is_failing = false;
        let mut late = Vec::new();
        loop {
            let mut batch = Vec::new();
            let is_moved = runtime.block_on(async {
                tokio::select! {
                    _ = queue.recv_many(&mut batch, BATCH) => false,
                    () = reopen.notified() => true,
                }
            });
            if batch.is_empty() && !is_moved {
                lost.inc_by(late.len() as u64);
                return;
            }
            // Outcomes that could not be written are written with the next events.
            batch.splice(..0, std::mem::take(&mut late));
            let done = if is_moved { chain.reopen() } else { Ok(()) };
            let done = done.and_then(|()| chain.write(&batch));
            let outcome = done.as_ref().map(drop).map_err(|_| AuditWriteError);
            for Waiting { event, written } in batch {
                match written {
                    // A request that no longer waits for its event will not be sent.
                    Some(written) => drop(written.send(outcome)),
                    None if outcome.is_ok() => {}
                    None if late.len() < QUEUE => late.push(Waiting { event, written: None }),
                    None => drop(lost.inc()),
                }
            }
            if let Err(error) = &done
                && !is_failing
            {
                tracing::error!(%error, "the audit log cannot be written: requests are refused");
            }
            is_failing = done.is_err();
        }
    });
    if work.await.is_err() {
        tracing::error!("the audit log writer stopped: requests are refused from now on");
    }
}

/// The file with the state of its hash chain.
#[derive(Debug)]
struct Chain {
    options: AuditOptions,
    file: File,
    /// Length of the file in bytes, without a partial last line.
    length: u64,
    /// Whether the file may contain a partial line after the complete lines.
    is_torn: bool,
    shard: i64,
    sequence: i64,
    hash: Fingerprint,
}

impl Chain {
    /// Opens the file. Continues the chain of existing events, or starts a new chain with the current time as its shard number.
    fn open(options: AuditOptions) -> io::Result<Self> {
        let mut file = opened(&options)?;
        let length = truncate_torn_line(&mut file)?;
        let (shard, sequence, hash) = (now_us(), 0, genesis());
        let mut chain = Self { options, file, length, is_torn: false, shard, sequence, hash };
        if length > 0 {
            let line = last_line(&mut chain.file, length)?;
            let event = parse_export_line(&line).map_err(|error| {
                let file = chain.options.file.display();
                io::Error::other(format!(
                    "the last line of {file} is not an audit event ({error}): move the file away"
                ))
            })?;
            (chain.shard, chain.sequence, chain.hash) = (event.shard, event.sequence, event.hash);
        }
        Ok(chain)
    }

    /// Reopens the file after a rotation. The chain continues.
    fn reopen(&mut self) -> io::Result<()> {
        // The lock of the old file is released first: it may be the same file.
        self.file.unlock()?;
        let mut file = opened(&self.options)?;
        self.length = truncate_torn_line(&mut file)?;
        self.file = file;
        Ok(())
    }

    /// Removes a partial write from the end of the file.
    fn cut(&mut self) -> io::Result<()> {
        self.is_torn = true;
        self.file.set_len(self.length)?;
        self.is_torn = false;
        Ok(())
    }

    /// Writes all events of the batch, or none.
    fn write(&mut self, batch: &[Waiting]) -> io::Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let (mut text, mut sequence, mut hash) = (String::new(), self.sequence, self.hash);
        for Waiting { event, .. } in batch {
            sequence += 1;
            let mut event = Event {
                shard: self.shard,
                sequence,
                at_us: now_us(),
                actor: event.actor.clone(),
                action: event.action.clone(),
                resource: event.resource.clone(),
                details: event.details.to_string(),
                hash,
            };
            event.hash = event.hash_after(&hash);
            hash = event.hash;
            text.push_str(&format_export_line(&event).map_err(io::Error::other)?);
            text.push('\n');
        }
        if std::mem::take(&mut self.is_torn) {
            self.cut()?;
        }
        let written = self.file.write_all(text.as_bytes()).and_then(|()| match self.options.sync {
            true => self.file.sync_data(),
            false => Ok(()),
        });
        if let Err(error) = written {
            // None of the requests that wait for these events has continued, so the events can be removed.
            self.cut()?;
            return Err(error);
        }
        (self.sequence, self.hash) = (sequence, hash);
        self.length += text.len() as u64;
        Ok(())
    }
}

fn opened(options: &AuditOptions) -> io::Result<File> {
    let file = private().read(true).append(true).create(true).open(&options.file)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let file = options.file.display();
            Err(io::Error::other(format!("another process writes to {file}: give each proxy its own file")))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes an incomplete last line after a crash: its request was not sent. Returns the remaining length.
fn truncate_torn_line(file: &mut File) -> io::Result<u64> {
    let length = file.metadata()?.len();
    let tail = tail(file, length)?;
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let torn = (tail.len() - whole) as u64;
    if torn > 0 {
        file.set_len(length - torn)?;
    }
    Ok(length - torn)
}

fn last_line(file: &mut File, length: u64) -> io::Result<String> {
    let mut tail = tail(file, length)?;
    tail.pop();
    let from = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    String::from_utf8(tail.split_off(from)).map_err(io::Error::other)
}

/// Returns the last `2 * LINE_MAX` bytes of a file, or the whole file if it is shorter. The bytes include the last line, which has
/// at most [`LINE_MAX`] bytes.
fn tail(file: &mut File, length: u64) -> io::Result<Vec<u8>> {
    let from = length.saturating_sub(2 * LINE_MAX);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(length - from).read_to_end(&mut tail)?;
    Ok(tail)
}

fn now_us() -> i64 {
    Timestamp::now().as_microsecond()
}

#[cfg(test)]
mod tests {
    use audit_proof::export::verify;
    use audit_proof::stored_heads::StoredHeads;
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    fn options(folder: &TempDir) -> AuditOptions {
        AuditOptions { file: folder.path().join("audit.jsonl"), sync: true }
    }

    fn event(path: &str) -> AuditEvent {
        AuditEvent {
            actor: "identity:ci".into(),
            action: "proxy.request.allow".into(),
            resource: "a.example:443".into(),
            details: json!({ "method": "GET", "path": path }),
        }
    }

    fn open(
        folder: &TempDir,
        reopen: Arc<Notify>,
    ) -> io::Result<(AuditLog, impl Future<Output = ()> + Send + use<>)> {
        AuditLog::open(&options(folder), reopen, &ServiceTasks::default(), &Counter::default())
    }

    fn log(folder: &TempDir) -> (AuditLog, tokio::task::JoinHandle<()>) {
        let (log, work) = open(folder, Arc::default()).unwrap();
        (log, tokio::spawn(work))
    }

    /// Verifies the chain and returns its number of events.
    #[track_caller]
    fn verified(folder: &TempDir) -> u64 {
        let text = std::fs::read(options(folder).file).unwrap();
        let found = verify(&*text, &StoredHeads::default(), None).unwrap();
        assert!(found.good && found.chains == 1, "{:?}", found.faults);
        found.events
    }

    #[tokio::test]
    async fn hash_chain_continues_after_a_torn_last_line() {
        let folder = TempDir::new().unwrap();
        let (one, work) = log(&folder);
        let all = (0..1_000).map(|number| {
            let log = one.clone();
            tokio::spawn(async move { log.record(event(&format!("/{number}"))).await })
        });
        for recorded in all.collect::<Vec<_>>() {
            recorded.await.unwrap().unwrap();
        }
        (0..10).for_each(|_| one.note(event("/ended")));
        one.record(event("/1000")).await.unwrap();
        assert_eq!(verified(&folder), 1_011);
        let taken = open(&folder, Arc::default()).err().unwrap().to_string();
        assert!(taken.contains("another process"), "{taken}");
        drop(one);
        work.await.unwrap();
        let mut file = std::fs::OpenOptions::new().append(true).open(options(&folder).file).unwrap();
        file.write_all(b"{\"at\":\"20").unwrap();
        let (two, work) = log(&folder);
        two.record(event("/after")).await.unwrap();
        assert_eq!(verified(&folder), 1_012);
        drop(two);
        work.await.unwrap();
        // A file whose last line is not an event is rejected.
        file.write_all(b"{}\n").unwrap();
        let wrong = open(&folder, Arc::default()).err().unwrap().to_string();
        assert!(wrong.contains("is not an audit event (") && wrong.contains("move the file away"), "{wrong}");
    }

    #[tokio::test]
    async fn hash_chain_continues_in_a_new_file_after_rotation() {
        let folder = TempDir::new().unwrap();
        let reopen = Arc::new(Notify::new());
        let (log, work) = open(&folder, Arc::clone(&reopen)).unwrap();
        let work = tokio::spawn(work);
        log.record(event("/1")).await.unwrap();
        let old = folder.path().join("old");
        std::fs::rename(options(&folder).file, &old).unwrap();
        reopen.notify_one();
        while !options(&folder).file.exists() {
            tokio::task::yield_now().await;
        }
        log.record(event("/2")).await.unwrap();
        drop(log);
        work.await.unwrap();
        let new = std::fs::read(options(&folder).file).unwrap();
        assert!(String::from_utf8_lossy(&new).contains("\"/2\""));
        std::fs::write(options(&folder).file, [std::fs::read(old).unwrap(), new].concat()).unwrap();
        assert_eq!(verified(&folder), 2);
    }

    #[tokio::test]
    async fn request_fails_when_its_event_cannot_be_written() {
        // A full disk.
        let full = AuditOptions { file: "/dev/full".into(), sync: false };
        let file = private().append(true).open(&full.file).unwrap();
        let chain =
            Chain { options: full, file, length: 0, is_torn: false, shard: 1, sequence: 0, hash: genesis() };
        let (queue, waiting) = mpsc::channel(1);
        let lost = Counter::default();
        let work = tokio::spawn(keep(chain, waiting, Arc::default(), lost.clone()));
        let log = AuditLog { queue, tasks: ServiceTasks::default(), lost: lost.clone() };
        // An outcome waits until the disk can be written again. Here this never happens, and the outcome is counted as lost.
        log.note(event("/ended"));
        assert_eq!(log.record(event("/")).await, Err(AuditWriteError));
        drop(log);
        work.await.unwrap();
        assert_eq!(lost.get(), 1);
    }
}
