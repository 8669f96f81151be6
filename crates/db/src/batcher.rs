//! Group commit: waiting callers share one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Maximum batch size, queue length and concurrency of a [`Batcher`].
#[derive(Clone, Copy, Debug)]
pub struct BatcherOptions {
    /// Maximum number of items in one batch, which is one transaction.
    pub batch_max: usize,
    /// Maximum number of queued items. When the queue is full, [`Batcher::submit`] waits.
    pub queue_max: usize,
    /// Maximum number of concurrent batches. While these commit, the next batch fills.
    pub at_once: usize,
}

impl Default for BatcherOptions {
    /// Returns the default: 256 items, 4,096 queued, 2 batches. One batch commits while the other is prepared.
    fn default() -> Self {
        Self { batch_max: 256, queue_max: 4_096, at_once: 2 }
    }
}

/// The work ended without a result: it panicked, or the runtime is shutting down.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the operation was aborted before it finished: try again")]
pub struct WorkAborted;

/// Groups items into batches: items that arrive while a batch runs form the next batch. There is no timer: a single item starts
/// immediately.
pub struct Batcher<I, O> {
    queue: mpsc::Sender<(I, oneshot::Sender<O>)>,
    /// Number of items without an output.
    pending: Arc<AtomicUsize>,
}

impl<I, O> Clone for Batcher<I, O> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), pending: Arc::clone(&self.pending) }
    }
}

impl<I, O> std::fmt::Debug for Batcher<I, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batcher")
            .field("queued", &(self.queue.max_capacity() - self.queue.capacity()))
            .field("pending", &self.pending.load(Ordering::Relaxed))
            .finish()
    }
}

impl<I: Send + 'static, O: Send + 'static> Batcher<I, O> {
    /// Starts the task that collects items; `kind` is its name in metrics. The task ends when the last clone of the batcher is
    /// dropped. `run` returns one output for each input, in order.
    pub fn new(
        kind: &'static str,
        options: BatcherOptions,
        run: impl Fn(Vec<I>) -> BoxFuture<'static, Vec<O>> + Send + Sync + 'static,
    ) -> Self {
        let (queue, incoming) = mpsc::channel(options.queue_max);
        tokio::spawn(gather(kind, options, Arc::new(run), incoming));
        Self { queue, pending: Arc::default() }
    }

    /// Submits an item and waits for its output.
    ///
    /// # Errors
    /// [`WorkAborted`] when the work returned no output.
    ///
    /// # Cancellation
    /// Dropping the future does not undo the work once it is queued.
    #[crate::boxed]
    pub async fn submit(&self, item: I) -> Result<O, WorkAborted> {
        let _pending = Pending::of(&self.pending);
        let (reply, answer) = oneshot::channel();
        self.queue.send((item, reply)).await.map_err(|_| WorkAborted)?;
        answer.await.map_err(|_| WorkAborted)
    }

    /// Returns the number of callers that wait for an output.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }
}

/// A caller that waits for an output.
struct Pending<'a>(&'a AtomicUsize);

impl<'a> Pending<'a> {
    fn of(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn gather<I: Send + 'static, O: Send + 'static>(
    kind: &'static str,
    options: BatcherOptions,
    run: Arc<dyn Fn(Vec<I>) -> BoxFuture<'static, Vec<O>> + Send + Sync>,
    mut incoming: mpsc::Receiver<(I, oneshot::Sender<O>)>,
) {
    let _live = telemetry::tasks::guard(kind);
    let free = Arc::new(Semaphore::new(options.at_once));
    loop {
        // Take the slot first: items that arrive while all slots are taken join the next batch.
        let Ok(slot) = Arc::clone(&free).acquire_owned().await else { return };
        let mut batch = Vec::new();
        if incoming.recv_many(&mut batch, options.batch_max).await == 0 {
            return;
        }
        if batch.len() < options.batch_max {
            // Callers that become ready together submit one after the other: let them run first.
            tokio::task::yield_now().await;
            while batch.len() < options.batch_max
                && let Ok(more) = incoming.try_recv()
            {
                batch.push(more);
            }
        }
        let run = Arc::clone(&run);
        tokio::spawn(async move {
            let _live = telemetry::tasks::guard(kind);
            let (items, replies): (Vec<I>, Vec<oneshot::Sender<O>>) = batch.into_iter().unzip();
            let answers = run(items).await;
            drop(slot);
            for (reply, answer) in replies.into_iter().zip(answers) {
                // A caller that was dropped needs no result.
                let _ = reply.send(answer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test]
    async fn queued_items_share_a_batch_and_each_gets_its_own_result() {
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sizes);
        let options = BatcherOptions { batch_max: 8, queue_max: 100, at_once: 1 };
        let batcher = Batcher::new("test-batch", options, move |items: Vec<u32>| {
            let seen = Arc::clone(&seen);
            Box::pin(async move {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                seen.lock().unwrap().push(items.len());
                items.into_iter().map(|item| item * 2).collect()
            })
        });
        let all = (0..40).map(|item| {
            let batcher = batcher.clone();
            tokio::spawn(async move { (item, batcher.submit(item).await.unwrap()) })
        });
        for one in all.collect::<Vec<_>>() {
            let (item, answer) = one.await.unwrap();
            assert_eq!(answer, item * 2);
        }
        let sizes = sizes.lock().unwrap();
        assert_eq!(sizes.iter().sum::<usize>(), 40);
        assert!(sizes.len() < 40 && sizes.iter().all(|size| *size <= 8), "{sizes:?}");
    }

    #[tokio::test]
    async fn panicking_batch_returns_an_error_to_its_callers() {
        let batcher: Batcher<(), ()> = Batcher::new("test-batch", BatcherOptions::default(), |_| {
            Box::pin(async { panic!("on purpose") })
        });
        assert!(batcher.submit(()).await.is_err());
    }
}
