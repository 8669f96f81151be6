//! Who listens: places for connections, and how they come to their end.

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

/// All tasks of a service, and how they stop.
#[derive(Clone, Debug, Default)]
pub struct Doors {
    tracker: TaskTracker,
    stopping: CancellationToken,
    kill: CancellationToken,
}

/// What a service does with connections.
pub trait Host: Send + Sync + 'static {
    /// The name of a connection's task.
    const TASK: &'static str;

    /// One, to its end.
    fn serve(self: Arc<Self>, stream: TcpStream, client: SocketAddr) -> impl Future<Output = ()> + Send;

    /// Another had no place.
    fn refused(&self);

    /// One was cut off at the stop.
    fn cut_off(&self);
}

impl Doors {
    /// Ends once the service is to stop.
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Has something done until it ends; whoever closes waits for it.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(work);
    }

    /// As [`Self::spawn`], cut off at the stop when its time is over.
    pub fn spawn_bounded(&self, work: impl Future<Output = ()> + Send + 'static) {
        let (kill, work) = (self.kill.clone(), Box::pin(work));
        self.tracker.spawn(async move {
            kill.run_until_cancelled(work).await;
        });
    }

    /// Lets in who comes, as long as there are places.
    pub fn open<H: Host>(&self, listener: TcpListener, host: Arc<H>, connections_max: usize) {
        self.open_sharing(listener, host, Arc::new(Semaphore::new(connections_max)));
    }

    /// As [`Self::open`], with places that other listeners take too.
    pub fn open_sharing<H: Host>(&self, listener: TcpListener, host: Arc<H>, places: Arc<Semaphore>) {
        self.tracker.spawn(self.clone().accept(listener, host, places));
    }

    async fn accept<H: Host>(self, listener: TcpListener, host: Arc<H>, places: Arc<Semaphore>) {
        loop {
            let accepted = tokio::select! {
                () = self.stopping.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, client)) => self.take(stream, client, &host, &places),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn take<H: Host>(&self, stream: TcpStream, client: SocketAddr, host: &Arc<H>, places: &Arc<Semaphore>) {
        // Closed rather than left waiting: another may have a place.
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            host.refused();
            return close_fast(stream);
        };
        let (host, kill) = (Arc::clone(host), self.kill.clone());
        self.tracker.spawn(async move {
            let _live = telemetry::tasks::guard(H::TASK);
            let _place = place;
            // Answers are written whole: waiting for more only delays them.
            let _ = stream.set_nodelay(true);
            // On the heap at once: it is large, and moved some times on its way into a task.
            let serving = Box::pin(Arc::clone(&host).serve(stream, client));
            if kill.run_until_cancelled(serving).await.is_none() {
                host.cut_off();
            }
        });
    }

    /// Takes no more connections, lets those there are come to their end for `grace`, and ends. False when some were cut off.
    pub async fn close(self, grace: Duration) -> bool {
        self.stopping.cancel();
        self.tracker.close();
        let drained = tokio::time::timeout(grace, self.tracker.wait()).await.is_ok();
        self.kill.cancel();
        self.tracker.wait().await;
        drained
    }
}
