//! The tasks of a service: listeners, connections, and their graceful shutdown.

use std::pin::Pin;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

type BoxedWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All tasks of a service. Clones are of the same service.
#[derive(Clone, Debug, Default)]
pub struct ServiceTasks {
    tracker: TaskTracker,
    stopping: CancellationToken,
    kill: CancellationToken,
}

impl ServiceTasks {
    /// Tasks of a service whose shutdown begins when `stopping` is cancelled.
    #[must_use]
    pub fn stopped_by(stopping: CancellationToken) -> Self {
        Self { stopping, ..Self::default() }
    }

    /// A token that is cancelled when the shutdown begins.
    #[must_use]
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Runs `work` as a task. The shutdown waits for its end.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(Box::pin(work));
    }

    /// One type of task for all futures: the runtime's code of a task is compiled once, not once a future.
    fn spawn_boxed(&self, work: BoxedWork) {
        self.tracker.spawn(work);
    }

    /// Runs `work` as a task that the shutdown aborts after the grace period.
    pub fn spawn_bounded(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_or(work, || {});
    }

    /// As [`Self::spawn_bounded`]; calls `aborted` when `work` was aborted.
    pub fn spawn_or(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
        aborted: impl FnOnce() + Send + 'static,
    ) {
        // On the heap at once: a future is large, and is moved some times on its way into a task.
        self.spawn_killable(Box::pin(work), Box::new(aborted));
    }

    fn spawn_killable(&self, work: BoxedWork, aborted: Box<dyn FnOnce() + Send>) {
        let kill = self.kill.clone();
        self.tracker.spawn(async move {
            if kill.run_until_cancelled(work).await.is_none() {
                aborted();
            }
        });
    }

    /// Shuts down without a grace period and without waiting: all tasks end at their next turn, except those that [`Self::spawn`] started.
    pub fn abort(&self) {
        self.stopping.cancel();
        self.kill.cancel();
    }

    /// Shuts down: accepts no more connections, and waits for those that are open for `grace`. Returns false when some were aborted.
    pub async fn close(self, grace: Duration) -> bool {
        self.stopping.cancel();
        self.tracker.close();
        let drained = tokio::time::timeout(grace, self.tracker.wait()).await.is_ok();
        self.kill.cancel();
        self.tracker.wait().await;
        drained
    }
}
