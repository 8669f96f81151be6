//! Who listens: mutual TLS on TCP, and Unix sockets for the same host; for the Keyless protocol and for the native one.

mod arriving;
mod connection;
mod door;
mod entry;
mod native;
mod outbox;
mod relays;
mod replies;
mod request;
mod service;
mod socket;
mod tls;
mod work;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keys::TicketKeys;
use parking_lot::RwLock;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::KeySet;
use crate::flow::LOOK_EVERY;
use crate::key_set::Places;
use crate::metrics::Metrics;
use crate::routing::Router;
use crate::stage::Stage;
use crate::tenant::{Identity, TenantError, TenantOptions, Tenants};
use door::{Door, accept_tcp, accept_unix};
use relays::Relays;
use socket::Bound;
use tls::Configs;
use work::{Caller, Octets};

pub use door::HANDSHAKES_MAX;
pub use native::CALLS_MAX;
pub use relays::RELAYED_MAX;
pub use service::{BATCH_MAX, INPUT_MAX, STREAM_MAX};
pub use socket::Bound as BoundSocket;
pub use tls::{TlsError, TlsOptions, mutual_tls};
pub use work::ELSEWHERE_MAX;

/// The port that clients of the protocol expect.
pub const PORT: u16 = 2407;
/// At the stop, beyond what a connection gives its requests under way.
const STOP_WITHIN: Duration = connection::DRAIN.saturating_add(Duration::from_secs(2));

/// How the server listens.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where TLS is spoken, and how; port 0 takes a free one.
    pub tls: Option<(SocketAddr, TlsOptions)>,
    /// A Unix socket, readable and writable by its owner only, where the protocol is spoken without TLS.
    pub socket: Option<PathBuf>,
    /// Where the native protocol is spoken, over the same TLS.
    pub native: Option<SocketAddr>,
    /// A Unix socket for it, as [`Self::socket`].
    pub native_socket: Option<PathBuf>,
    /// Where other nodes of the same service ask, and who they are.
    pub nodes: Option<NodesOptions>,
    /// Whose clients there are; can be changed by [`Running::change_tenants`].
    pub tenants: Vec<TenantOptions>,
    /// Connections at once over TLS, and as many over Unix sockets; more are closed. Some 50 KB each.
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
    /// Whether keys of security modules decrypt for tenants that may ([`TenantOptions::rsa_decrypt`]).
    pub rsa_decrypt: bool,
    /// Processors for signing.
    pub processors: usize,
}

/// Where other nodes ask: by the native protocol, over TLS of its own.
#[derive(Clone, Debug)]
pub struct NodesOptions {
    /// Port 0 takes a free one.
    pub address: SocketAddr,
    /// The node's own certificate, and the roots of the others'.
    pub tls: TlsOptions,
    /// Knows who is a node.
    pub router: Router,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tls: None,
            socket: None,
            native: None,
            native_socket: None,
            nodes: None,
            tenants: Vec::new(),
            connections_max: 4_096,
            handshake_timeout: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            socket_idle: Duration::from_secs(3_600),
            deadline: Duration::from_secs(5),
            ticket_life: Duration::from_secs(12 * 3_600),
            rsa_decrypt: false,
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
    /// The native protocol is to be spoken over TLS, of which nothing is said.
    #[error("the native protocol is spoken over TLS: it needs the certificate of the other one")]
    NoTls,
    /// A tenant that cannot be.
    #[error(transparent)]
    Tenant(#[from] TenantError),
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
    stage: Stage<Caller>,
    tenants: Tenants,
    metrics: Metrics,
    tickets: Option<TicketKeys>,
    elsewhere: Places,
    relays: Relays,
    octets: Octets,
    tls: RwLock<Option<Presented>>,
    /// Towards other nodes.
    nodes_tls: RwLock<Option<Presented>>,
    door: Door,
    tracker: TaskTracker,
    stopping: CancellationToken,
    kill: CancellationToken,
}

/// Whom connections are presented and whom they believe, until that changes.
struct Presented {
    configs: Configs,
    options: TlsOptions,
    /// Cancelled when clients who came in by this may not come in any more.
    dismissed: CancellationToken,
}

impl Presented {
    fn new(configs: Configs, options: TlsOptions, stopping: &CancellationToken) -> Self {
        Self { configs, options, dismissed: stopping.child_token() }
    }
}

/// A server that runs, until [`Running::stop`].
pub struct Running {
    /// Where TLS is spoken.
    pub address: Option<SocketAddr>,
    /// Where the native protocol is spoken over TLS.
    pub native: Option<SocketAddr>,
    /// Where other nodes ask.
    pub nodes: Option<SocketAddr>,
    shared: Arc<Shared>,
    sockets: Vec<Bound>,
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
    let is_somewhere = options.tls.is_some() || options.nodes.is_some();
    if !is_somewhere && options.socket.is_none() && options.native_socket.is_none() {
        return Err(StartError::Nowhere);
    }
    if options.native.is_some() && options.tls.is_none() {
        return Err(StartError::NoTls);
    }
    let tls = match &options.tls {
        Some((_, tls)) => Some((tls::configs(tls)?, tls.clone())),
        None => None,
    };
    let nodes_tls = match &options.nodes {
        Some(nodes) => Some((tls::configs(&nodes.tls)?, nodes.tls.clone())),
        None => None,
    };
    let keyless = bind(options.tls.as_ref().map(|(address, _)| *address))?;
    let native = bind(options.native)?;
    let nodes = bind(options.nodes.as_ref().map(|nodes| nodes.address))?;
    let keyless_socket = bind_socket(options.socket.as_deref()).await?;
    let native_socket = bind_socket(options.native_socket.as_deref()).await?;
    let stage = Stage::start(options.processors.max(1)).map_err(StartError::Threads)?;
    crate::metrics::register_stage(&metrics, &stage);
    let is_local = options.socket.is_some() || options.native_socket.is_some();
    let kinds = [options.tls.is_some(), is_local, options.nodes.is_some()];
    metrics.connections_max(options.connections_max * kinds.into_iter().filter(|kind| *kind).count());
    let tickets = Some(options.ticket_life).filter(|life| !life.is_zero()).map(TicketKeys::new);
    let tenants = Tenants::new(metrics.clone(), options.connections_max);
    tenants.change(&options.tenants, &stage)?;
    let shared = Arc::new(Shared {
        keys,
        stage,
        tenants,
        metrics,
        tickets,
        elsewhere: Places::default(),
        relays: Relays::default(),
        octets: Octets::default(),
        tls: RwLock::new(None),
        nodes_tls: RwLock::new(None),
        door: Door::new(options.connections_max),
        tracker: TaskTracker::new(),
        stopping: CancellationToken::new(),
        kill: CancellationToken::new(),
        options,
    });
    let present = |(configs, options)| Presented::new(configs, options, &shared.stopping);
    *shared.tls.write() = tls.map(present);
    *shared.nodes_tls.write() = nodes_tls.map(present);
    let listeners = [(keyless, Protocol::Keyless), (native, Protocol::Native), (nodes, Protocol::Nodes)];
    let mut addresses = [None; 3];
    for (at, (listener, protocol)) in listeners.into_iter().enumerate() {
        if let Some(listener) = listener {
            addresses[at] = listener.local_addr().ok();
            shared.tracker.spawn(accept_tcp(Arc::clone(&shared), listener, protocol));
        }
    }
    let mut sockets = Vec::new();
    for (socket, protocol) in [(keyless_socket, Protocol::Keyless), (native_socket, Protocol::Native)] {
        if let Some((bound, listener)) = socket {
            shared.tracker.spawn(accept_unix(Arc::clone(&shared), listener, protocol));
            sockets.push(bound);
        }
    }
    shared.tracker.spawn(look_at_flows(Arc::clone(&shared)));
    let [address, native, nodes] = addresses;
    Ok(Running { address, native, nodes, shared, sockets })
}

/// What is spoken on a connection.
#[derive(Clone, Copy)]
enum Protocol {
    Keyless,
    Native,
    /// The native one, by other nodes.
    Nodes,
}

/// Holds L = λW against itself, of every tenant and of everybody who is asked, until the server stops.
async fn look_at_flows(shared: Arc<Shared>) {
    let _live = telemetry::tasks::guard("keyless-flows");
    loop {
        tokio::select! {
            () = shared.stopping.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => shared.look_at_flows(Instant::now()),
        }
    }
}

fn bind(address: Option<SocketAddr>) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(None) };
    inbound::listen(address).map(Some).map_err(|source| bind_error(address, source))
}

async fn bind_socket(path: Option<&Path>) -> Result<Option<(Bound, UnixListener)>, StartError> {
    let Some(path) = path else { return Ok(None) };
    Bound::at(path).await.map(Some).map_err(|source| bind_error(path.display(), source))
}

fn bind_error(place: impl fmt::Display, source: io::Error) -> StartError {
    StartError::Bind { place: place.to_string(), source }
}

impl Running {
    /// Presents another certificate from the next connection on, and believes other roots and CRLs. Where a root is gone or a
    /// CRL is another, connections end once what is under way is answered, and have to show again who they are.
    ///
    /// # Errors
    /// [`TlsError`]; all stays as it was then.
    pub fn change_tls(&self, options: &TlsOptions) -> Result<(), TlsError> {
        self.change(&self.shared.tls, options)
    }

    /// The same towards other nodes.
    ///
    /// # Errors
    /// [`TlsError`]; all stays as it was then.
    pub fn change_nodes_tls(&self, options: &TlsOptions) -> Result<(), TlsError> {
        self.change(&self.shared.nodes_tls, options)
    }

    fn change(&self, presented: &RwLock<Option<Presented>>, options: &TlsOptions) -> Result<(), TlsError> {
        let mut new = Presented::new(tls::configs(options)?, options.clone(), &self.shared.stopping);
        let mut presented = presented.write();
        if let Some(before) = presented.take() {
            if before.options.admits_no_less(options) {
                new.dismissed = before.dismissed;
            } else {
                before.dismissed.cancel();
            }
        }
        *presented = Some(new);
        Ok(())
    }

    /// Has other tenants, or other limits, count from the next request on, on every connection.
    ///
    /// # Errors
    /// [`TenantError`]; all stays as it was then.
    pub fn change_tenants(&self, tenants: &[TenantOptions]) -> Result<(), TenantError> {
        self.shared.tenants.change(tenants, &self.shared.stage)
    }

    /// Takes no more connections or requests, answers those under way for five seconds, and ends. False when some were
    /// cut off.
    pub async fn stop(self) -> bool {
        let Self { shared, sockets, .. } = self;
        shared.stopping.cancel();
        shared.tracker.close();
        let drained = tokio::time::timeout(STOP_WITHIN, shared.tracker.wait()).await.is_ok();
        shared.kill.cancel();
        shared.tracker.wait().await;
        shared.stage.stop().await;
        sockets.iter().for_each(Bound::remove);
        drained
    }
}

impl Shared {
    /// Knows the other nodes, where this is one.
    fn router(&self) -> Option<&Router> {
        self.options.nodes.as_ref().map(|nodes| &nodes.router)
    }

    /// Whether somebody who comes as a node is one, still; who does not is let in by its certificate alone.
    fn lets_in(&self, identity: &Identity) -> bool {
        !identity.is_node() || self.router().is_some_and(|router| router.knows(identity))
    }

    fn look_at_flows(&self, now: Instant) {
        self.tenants.look(now);
        self.metrics.destinations().look(now);
        if let Some(nodes) = &self.options.nodes {
            nodes.router.look(now);
        }
    }

    /// Until somebody who came as a node is none any more.
    async fn let_out(&self, identity: &Identity) {
        match self.router() {
            Some(router) => router.gone(identity).await,
            None => std::future::pending().await,
        }
    }

    /// Runs a connection as a task that is counted and ends with the server.
    fn run(self: &Arc<Self>, serving: impl Future<Output = &'static str> + Send + 'static) {
        let (kill, metrics) = (self.kill.clone(), self.metrics.clone());
        self.tracker.spawn(async move {
            let _live = telemetry::tasks::guard("keyless-connection");
            let _counted = metrics.connection();
            let end = tokio::select! {
                () = kill.cancelled() => "cut-off",
                end = serving => end,
            };
            metrics.connection_ended(end);
        });
    }
}
