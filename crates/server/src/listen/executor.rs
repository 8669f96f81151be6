//! The tasks of HTTP/2 streams.

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Runs HTTP/2's streams as tasks that are counted and end with the server.
#[derive(Clone)]
pub(super) struct Streams {
    pub(super) tracker: TaskTracker,
    pub(super) kill: CancellationToken,
}

impl Streams {
    /// Runs something that belongs to a stream and outlives its handler. Nothing, once the server is gone.
    pub(super) fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
        if tokio::runtime::Handle::try_current().is_ok() && !self.kill.is_cancelled() {
            self.execute(work);
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let kill = self.kill.clone();
        self.tracker.spawn(async move {
            let _task = telemetry::tasks::guard("http2-stream");
            tokio::select! {
                () = kill.cancelled() => {}
                () = stream => {}
            }
        });
    }
}
