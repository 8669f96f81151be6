//! The tasks of a service: listeners, connections, and their graceful shutdown.

use std::pin::Pin;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

type BoxedWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// All tasks of a service. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ServiceTasks {
    tracker: TaskTracker,
    stopping: CancellationToken,
    kill: CancellationToken,
}

impl ServiceTasks {
    /// Creates the tasks of a service whose shutdown begins when `stopping` is cancelled.
    #[must_use]
    pub fn stopped_by(stopping: CancellationToken) -> Self {
        Self { stopping, ..Self::default() }
    }

    /// Returns a token that is cancelled when the shutdown begins.
    #[must_use]
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Runs `work` as a task. The shutdown waits for its end.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(Box::pin(work));
    }

    /// Spawns a boxed future. With one task type for all futures, the compiler generates the runtime's task code once, not for each
    /// future.
    fn spawn_boxed(&self, work: BoxedWork) {
        self.tracker.spawn(work);
    }

    /// Runs `work` as a task that the shutdown aborts after the grace period.
    pub fn spawn_bounded(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_with_abort_handler(work, || {});
    }

    /// Like [`Self::spawn_bounded`]; calls `aborted` if `work` was aborted.
    pub fn spawn_with_abort_handler(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
        aborted: impl FnOnce() + Send + 'static,
    ) {
        // Boxed immediately: the future is large, and would be moved several times on its way into a task.
        self.spawn_abortable(Box::pin(work), Box::new(aborted));
    }

    fn spawn_abortable(&self, work: BoxedWork, aborted: Box<dyn FnOnce() + Send>) {
        let kill = self.kill.clone();
        self.tracker.spawn(async move {
            if kill.run_until_cancelled(work).await.is_none() {
                aborted();
            }
        });
    }

    /// Shuts down without a grace period and without waiting: tasks end at their next poll, except those that [`Self::spawn`]
    /// started.
    pub fn abort(&self) {
        self.stopping.cancel();
        self.kill.cancel();
    }

    /// Shuts down: stops accepting connections, and waits up to `grace` for open ones. Returns false if some were aborted.
    pub async fn close(self, grace: Duration) -> bool {
        self.stopping.cancel();
        self.tracker.close();
        let drained = tokio::time::timeout(grace, self.tracker.wait()).await.is_ok();
        self.kill.cancel();
        self.tracker.wait().await;
        drained
    }
}
