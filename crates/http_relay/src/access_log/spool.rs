//! Background writers: requests queue items, and one task for each sink writes them.

use std::io;
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Notify, mpsc};

/// Maximum items of one write.
const BATCH: usize = 256;

/// Destination of queued items. Its methods may block.
pub trait Sink: Send + 'static {
    /// Type of the queued items, such as log lines.
    type Item: Send + 'static;
    /// Name of the writer task.
    const TASK: &'static str;

    /// Writes items in order until one fails. Returns the number of written items, and the error if there was one.
    fn write(&mut self, items: &[Self::Item]) -> (usize, io::Result<()>);

    /// Reopens the file after a rotation.
    fn reopen(&mut self) -> io::Result<()>;
}

/// A bounded queue to a sink. Items that do not fit are counted and dropped.
#[derive(Debug)]
pub struct Spool<T> {
    queue: mpsc::Sender<T>,
    dropped: Counter,
}

impl<T: Send + 'static> Spool<T> {
    /// Creates the queue and the future of its writer. The future completes when the queue is dropped and all items are written.
    pub fn new<S: Sink<Item = T>>(
        sink: S,
        capacity: usize,
        dropped: Counter,
        reopen: Arc<Notify>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (queue, items) = mpsc::channel(capacity);
        let work = keep(sink, items, dropped.clone(), reopen);
        (Self { queue, dropped }, work)
    }

    /// Queues `item`, or counts it as dropped if the queue is full.
    pub fn put(&self, item: T) {
        if self.queue.try_send(item).is_err() {
            self.dropped.inc();
        }
    }
}

async fn keep<S: Sink>(
    mut sink: S,
    mut queue: mpsc::Receiver<S::Item>,
    dropped: Counter,
    reopen: Arc<Notify>,
) {
    let _live = telemetry::tasks::guard(S::TASK);
    let mut is_failing = false;
    loop {
        let mut items = Vec::new();
        let moved = tokio::select! {
            count = queue.recv_many(&mut items, BATCH) => {
                if count == 0 {
                    return;
                }
                false
            }
            () = reopen.notified() => true,
        };
        let count = items.len();
        let work = tokio::task::spawn_blocking(move || {
            let (written, done) = if moved { (0, sink.reopen()) } else { sink.write(&items) };
            (sink, written, done)
        });
        let Ok((back, written, done)) = work.await else {
            return tracing::error!(task = S::TASK, "the log writer stopped: entries are lost from now on");
        };
        sink = back;
        match done {
            Ok(()) => is_failing = false,
            Err(error) => {
                dropped.inc_by(count.saturating_sub(written) as u64);
                if !is_failing {
                    tracing::warn!(task = S::TASK, %error, "cannot write log entries; see the metrics of dropped entries");
                }
                is_failing = true;
            }
        }
    }
}
