//! Execution of HTTP/2 streams as tasks.

use hyper::rt::Executor;
use inbound::ServiceTasks;
use tokio_util::sync::CancellationToken;

/// Executor that runs HTTP/2 streams as tasks that are counted and end with the server.
#[derive(Clone)]
pub(super) struct Streams {
    pub(super) tasks: ServiceTasks,
    /// Canceled when the connection of the streams ends.
    pub(super) ended: CancellationToken,
}

impl Streams {
    /// Runs work of a stream that may outlive its handler. Does nothing after the connection or the server has ended.
    pub(super) fn spawn_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        if tokio::runtime::Handle::try_current().is_ok() && !self.ended.is_cancelled() {
            self.execute(work);
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            let _task = telemetry::tasks::guard("http2-stream");
            tokio::select! {
                () = ended.cancelled() => {}
                () = stream => {}
            }
        });
    }
}
