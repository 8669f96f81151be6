//! The tasks of a service: listeners, connections, and their graceful shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use outbound::dial::close_fast;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// After an error of `accept` (no descriptors left), before the next try.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// All tasks of a service. Clones are of the same service.
#[derive(Clone, Debug, Default)]
pub struct ServiceTasks {
    tracker: TaskTracker,
    stopping: CancellationToken,
    kill: CancellationToken,
}

/// Handles the connections that a service accepts.
pub trait ConnectionHandler: Send + Sync + 'static {
    /// The name of a connection's task, in figures of tasks.
    const TASK: &'static str;

    /// Serves a connection until it ends.
    fn serve(self: Arc<Self>, stream: TcpStream, client: SocketAddr) -> impl Future<Output = ()> + Send;

    /// Notes that a connection was closed, as all slots were taken.
    fn refused(&self);

    /// Notes that a connection was closed at the end of the shutdown's grace period.
    fn cut_off(&self);
}

impl ServiceTasks {
    /// A token that is cancelled when the shutdown begins.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Runs `work` as a task. The shutdown waits for its end.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(work);
    }

    /// Runs `work` as a task that the shutdown aborts after the grace period.
    pub fn spawn_bounded(&self, work: impl Future<Output = ()> + Send + 'static) {
        let (kill, work) = (self.kill.clone(), Box::pin(work));
        self.tracker.spawn(async move {
            kill.run_until_cancelled(work).await;
        });
    }

    /// Accepts connections, `connections_max` at once. Further connections are closed at once.
    pub fn open<H: ConnectionHandler>(&self, listener: TcpListener, handler: Arc<H>, connections_max: usize) {
        self.open_sharing(listener, handler, Arc::new(Semaphore::new(connections_max)));
    }

    /// As [`Self::open`], with slots that other listeners use too.
    pub fn open_sharing<H: ConnectionHandler>(
        &self,
        listener: TcpListener,
        handler: Arc<H>,
        slots: Arc<Semaphore>,
    ) {
        self.tracker.spawn(self.clone().accept(listener, handler, slots));
    }

    async fn accept<H: ConnectionHandler>(
        self,
        listener: TcpListener,
        handler: Arc<H>,
        slots: Arc<Semaphore>,
    ) {
        loop {
            let accepted = tokio::select! {
                () = self.stopping.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, client)) => self.take(stream, client, &handler, &slots),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn take<H: ConnectionHandler>(
        &self,
        stream: TcpStream,
        client: SocketAddr,
        handler: &Arc<H>,
        slots: &Arc<Semaphore>,
    ) {
        // Closed rather than left waiting: another may have a slot.
        let Ok(slot) = Arc::clone(slots).try_acquire_owned() else {
            handler.refused();
            return close_fast(stream);
        };
        let (handler, kill) = (Arc::clone(handler), self.kill.clone());
        self.tracker.spawn(async move {
            let _live = telemetry::tasks::guard(H::TASK);
            let _slot = slot;
            // Answers are written whole: waiting for more only delays them.
            let _ = stream.set_nodelay(true);
            // On the heap at once: it is large, and moved some times on its way into a task.
            let serving = Box::pin(Arc::clone(&handler).serve(stream, client));
            if kill.run_until_cancelled(serving).await.is_none() {
                handler.cut_off();
            }
        });
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
