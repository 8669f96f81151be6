//! The tasks of HTTP/2 streams.

use hyper::rt::Executor;
use inbound::ServiceTasks;
use tokio_util::sync::CancellationToken;

/// Runs HTTP/2's streams as tasks that are counted and end with the server.
#[derive(Clone)]
pub(super) struct Streams {
    pub(super) tasks: ServiceTasks,
    /// Cancelled at the end of the streams' connection.
    pub(super) ended: CancellationToken,
}

impl Streams {
    /// Runs something that belongs to a stream and outlives its handler. Nothing, once the server is gone.
    pub(super) fn beside(&self, work: impl Future<Output = ()> + Send + 'static) {
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
