//! Who listens: mutual TLS on TCP, and Unix sockets for the same host.

mod connection;
mod outbox;
mod request;
mod socket;
mod tls;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keys::TicketKeys;
use parking_lot::RwLock;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::KeySet;
use crate::key_set::Places;
use crate::metrics::Metrics;
use crate::stage::Stage;
use outbox::Ticket;
use socket::Bound;

pub use request::ELSEWHERE_MAX;
pub use tls::{TlsError, TlsOptions};

/// The port that clients of the protocol expect.
pub const PORT: u16 = 2407;
/// After an error of `accept` (no descriptors left), before the next try.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// At the stop, beyond what a connection gives its requests under way.
const STOP_WITHIN: Duration = connection::DRAIN.saturating_add(Duration::from_secs(2));

/// How the server listens.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where TLS is spoken, and how; port 0 takes a free one.
    pub tls: Option<(SocketAddr, TlsOptions)>,
    /// A Unix socket, readable and writable by its owner only, where the protocol is spoken without TLS.
    pub socket: Option<PathBuf>,
    /// Connections at once over all listeners; more wait in the system's queue. Some 50 KB each.
    pub connections_max: usize,
    /// For the TLS handshake.
    pub handshake_timeout: Duration,
    /// A TCP connection on which nothing was read, before it is closed.
    pub idle: Duration,
    /// The same of a Unix socket.
    pub socket_idle: Duration,
    /// What a signature is worth waiting for, from when its request was read: clients of the protocol say nothing of that,
    /// and wait 10 s.
    pub deadline: Duration,
    /// How long a key for session tickets seals; it opens for twice as long. Nothing is sealed when zero.
    pub ticket_life: Duration,
    /// Processors for signing.
    pub processors: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tls: None,
            socket: None,
            connections_max: 4_096,
            handshake_timeout: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            socket_idle: Duration::from_secs(3_600),
            deadline: Duration::from_secs(5),
            ticket_life: Duration::from_secs(12 * 3_600),
            processors: std::thread::available_parallelism().map_or(2, usize::from),
        }
    }
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Neither an address nor a socket.
    #[error("there is nowhere to listen")]
    Nowhere,
    /// Somebody else listens there, or it is not permitted.
    #[error("cannot listen on {place}: {source}")]
    Bind {
        /// Where.
        place: String,
        /// What the system said.
        source: io::Error,
    },
    /// The certificate, its key, or a root.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No threads can be started.
    #[error("no threads for signing can be started: {0}")]
    Threads(io::Error),
}

/// What all connections share.
struct Shared {
    options: Options,
    keys: KeySet,
    stage: Stage<Ticket>,
    metrics: Metrics,
    tickets: Option<TicketKeys>,
    elsewhere: Places,
    tls: RwLock<Option<Arc<ServerConfig>>>,
    permits: Arc<Semaphore>,
    tracker: TaskTracker,
    stopping: CancellationToken,
    kill: CancellationToken,
}

/// A server that runs, until [`Running::stop`].
pub struct Running {
    /// Where TLS is spoken.
    pub address: Option<SocketAddr>,
    shared: Arc<Shared>,
    socket: Option<Bound>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Listens, and signs with `keys`.
///
/// # Errors
/// [`StartError`]
pub async fn start(options: Options, keys: KeySet, metrics: Metrics) -> Result<Running, StartError> {
    if options.tls.is_none() && options.socket.is_none() {
        return Err(StartError::Nowhere);
    }
    let tls = options.tls.as_ref().map(|(_, tls)| tls::config(tls)).transpose()?;
    let listener = match &options.tls {
        Some((address, _)) => Some(bind(*address).await?),
        None => None,
    };
    let socket = match &options.socket {
        Some(path) => Some(Bound::at(path).await.map_err(|source| bind_error(path.display(), source))?),
        None => None,
    };
    let stage = Stage::start(options.processors.max(1)).map_err(StartError::Threads)?;
    crate::metrics::register_stage(&metrics, &stage);
    let tickets = Some(options.ticket_life).filter(|life| !life.is_zero()).map(TicketKeys::new);
    let shared = Arc::new(Shared {
        keys,
        stage,
        metrics,
        tickets,
        elsewhere: Places::default(),
        tls: RwLock::new(tls),
        permits: Arc::new(Semaphore::new(options.connections_max)),
        tracker: TaskTracker::new(),
        stopping: CancellationToken::new(),
        kill: CancellationToken::new(),
        options,
    });
    let mut address = None;
    if let Some(listener) = listener {
        address = listener.local_addr().ok();
        let accepting = accept_tcp(Arc::clone(&shared), listener);
        shared.tracker.spawn(accepting);
    }
    let socket = socket.map(|(bound, listener)| {
        shared.tracker.spawn(accept_unix(Arc::clone(&shared), listener));
        bound
    });
    Ok(Running { address, shared, socket })
}

async fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| bind_error(address, source))
}

fn bind_error(place: impl fmt::Display, source: io::Error) -> StartError {
    StartError::Bind { place: place.to_string(), source }
}

impl Running {
    /// Presents another certificate, and believes other roots, from the next connection on.
    ///
    /// # Errors
    /// [`TlsError`]; all stays as it was then.
    pub fn change_tls(&self, options: &TlsOptions) -> Result<(), TlsError> {
        *self.shared.tls.write() = Some(tls::config(options)?);
        Ok(())
    }

    /// Takes no more connections or requests, answers those under way for five seconds, and ends. False when some were
    /// cut off.
    pub async fn stop(self) -> bool {
        let Self { shared, socket, .. } = self;
        shared.stopping.cancel();
        shared.tracker.close();
        let drained = tokio::time::timeout(STOP_WITHIN, shared.tracker.wait()).await.is_ok();
        shared.kill.cancel();
        shared.tracker.wait().await;
        shared.stage.stop().await;
        if let Some(socket) = socket {
            socket.remove();
        }
        drained
    }
}

impl Shared {
    /// A place for one more connection; `None` when the server stops.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            () = self.stopping.cancelled() => None,
            permit = Arc::clone(&self.permits).acquire_owned() => permit.ok(),
        }
    }

    /// Runs a connection as a task that is counted and ends with the server.
    fn run(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        serving: impl Future<Output = &'static str> + Send + 'static,
    ) {
        let (kill, metrics) = (self.kill.clone(), self.metrics.clone());
        self.tracker.spawn(async move {
            let _live = telemetry::tasks::guard("keyless-connection");
            let _permit = permit;
            let _counted = metrics.connection();
            let end = tokio::select! {
                () = kill.cancelled() => "cut-off",
                end = serving => end,
            };
            metrics.connection_ended(end);
        });
    }
}

async fn accept_tcp(shared: Arc<Shared>, listener: TcpListener) {
    while let Some(permit) = shared.permit().await {
        let accepted = tokio::select! {
            () = shared.stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        if let Some((stream, address)) = or_pause(accepted).await {
            shared.run(permit, over_tls(Arc::clone(&shared), stream, address));
        }
    }
}

async fn accept_unix(shared: Arc<Shared>, listener: UnixListener) {
    while let Some(permit) = shared.permit().await {
        let accepted = tokio::select! {
            () = shared.stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        if let Some((stream, _)) = or_pause(accepted).await {
            shared.run(permit, over_unix(Arc::clone(&shared), stream));
        }
    }
}

/// Says why there is no connection, and waits for better times.
async fn or_pause<T>(accepted: io::Result<T>) -> Option<T> {
    match accepted {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn over_tls(shared: Arc<Shared>, stream: TcpStream, address: SocketAddr) -> &'static str {
    // Replies are written whole: waiting for more only delays them.
    let _ = stream.set_nodelay(true);
    let Some(config) = shared.tls.read().clone() else { return "refused" };
    let handshake = TlsAcceptor::from(config).accept(stream);
    let handshake = tokio::time::timeout(shared.options.handshake_timeout, handshake);
    let stream = tokio::select! {
        () = shared.stopping.cancelled() => return "stopped",
        outcome = handshake => match outcome {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::info!(%address, %error, "a client was refused");
                return "refused";
            }
            Err(_) => return "handshake-timed-out",
        },
    };
    let idle = shared.options.idle;
    connection::serve(shared, stream, idle).await.name()
}

async fn over_unix(shared: Arc<Shared>, stream: UnixStream) -> &'static str {
    let idle = shared.options.socket_idle;
    connection::serve(shared, stream, idle).await.name()
}
