//! Listeners: TLS for the API, plain HTTP for what is public by design; bounded, and stopped without losing a request.

mod body;
mod connection;
mod figures;
mod stream;
mod tls;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use ipnet::IpNet;
use parking_lot::{Mutex, RwLock};
use rustls::ServerConfig;
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::router::{credential_router, public_router, router};
use crate::state::State;
use tls::Presented;

pub use figures::{Documents, serve_figures};
pub use tls::{TlsError, server_certificate};

/// After an error of `accept` (no descriptors left), before the next try.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection to the credential store without a request, before it is closed: its clients ask once a minute and pay
/// every new connection with a whole handshake.
const CREDENTIALS_IDLE: Duration = Duration::from_secs(600);

/// Between two rounds of forgetting idle keys of the rate limits.
const FORGET_EVERY: Duration = Duration::from_secs(10);

/// How the server listens.
#[derive(Clone)]
pub struct ServerOptions {
    /// Where TLS is spoken. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the credential store is spoken to over TLS; nowhere when `None`.
    pub credentials: Option<SocketAddr>,
    /// Where plain HTTP is spoken: CRLs, OCSP, http-01 answers; nowhere when `None`.
    pub public: Option<SocketAddr>,
    /// The certificate presented; see [`server_certificate`].
    pub certificate: Arc<CertifiedKey>,
    /// Roots (DER) below which client certificates are accepted; none are asked for when empty.
    pub client_roots: Vec<Vec<u8>>,
    /// Proxies in front, whose `X-Forwarded-For` is believed. Their client certificates are not: whoever uses mutual TLS
    /// speaks to this server itself.
    pub trusted_proxies: Vec<IpNet>,
    /// Connections at once over all listeners; more wait in the system's queue. Some 30 KiB each.
    pub connections_max: usize,
    /// Of these from one address; more are closed at once. An office of agents behind one address fits.
    pub connections_per_address_max: usize,
    /// For the TLS handshake.
    pub handshake_timeout: Duration,
    /// For a request's head on HTTP/1.1, which includes the wait for a next request; between two pings on HTTP/2.
    pub head_timeout: Duration,
    /// For a request's whole body.
    pub body_timeout: Duration,
    /// A connection without a request, before it is closed.
    pub idle_timeout: Duration,
    /// A write without progress, before the connection is given up.
    pub write_timeout: Duration,
    /// Requests under way of which nothing moves; longer than any handler may take.
    pub stall_timeout: Duration,
    /// At the stop, for requests under way.
    pub drain_timeout: Duration,
}

impl ServerOptions {
    /// Limits that suit a control plane on a small machine.
    #[must_use]
    pub fn new(listen: SocketAddr, certificate: Arc<CertifiedKey>) -> Self {
        Self {
            listen,
            credentials: None,
            public: None,
            certificate,
            client_roots: Vec::new(),
            trusted_proxies: Vec::new(),
            connections_max: 4_096,
            connections_per_address_max: 1_024,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(90),
            write_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(180),
            drain_timeout: Duration::from_secs(25),
        }
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("listen", &self.listen)
            .field("public", &self.public)
            .field("client_roots", &self.client_roots.len())
            .finish_non_exhaustive()
    }
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Somebody else listens there, or it is not permitted.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The certificate, its key, or a root.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// What all connections share.
struct Shared {
    state: State,
    options: ServerOptions,
    presented: Arc<Presented>,
    tls: RwLock<Arc<ServerConfig>>,
    credential_tls: RwLock<Arc<ServerConfig>>,
    permits: Arc<Semaphore>,
    by_address: Mutex<HashMap<IpAddr, usize>>,
    tracker: TaskTracker,
    stopping: CancellationToken,
    kill: CancellationToken,
}

impl Shared {
    fn tls(&self, kind: Listener) -> Arc<ServerConfig> {
        match kind {
            Listener::Credentials => Arc::clone(&self.credential_tls.read()),
            Listener::Tls | Listener::Public => Arc::clone(&self.tls.read()),
        }
    }
}

/// Starts servers.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Listens, and serves until [`Running::stop`].
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(options: ServerOptions, state: State) -> Result<Running, StartError> {
        let presented = Arc::new(Presented::new(Arc::clone(&options.certificate)));
        let tls = tls::config(Arc::clone(&presented), &options.client_roots)?;
        let credential_tls = tls::credential_config(Arc::clone(&presented), &options.client_roots)?;
        let listener = bind(options.listen)?;
        let public = bind_to(options.public)?;
        let credentials = bind_to(options.credentials)?;
        let address = local(&listener, options.listen)?;
        let public_address = local_of(public.as_ref(), options.public)?;
        let credential_address = local_of(credentials.as_ref(), options.credentials)?;
        let shared = Arc::new(Shared {
            permits: Arc::new(Semaphore::new(options.connections_max)),
            stopping: state.stopping().clone(),
            kill: CancellationToken::new(),
            presented,
            tls: RwLock::new(tls),
            credential_tls: RwLock::new(credential_tls),
            by_address: Mutex::default(),
            tracker: TaskTracker::new(),
            options,
            state,
        });
        let (api, _) = router(&shared.state);
        accept_all(&shared, listener, Listener::Tls, api);
        if let Some(public) = public {
            accept_all(&shared, public, Listener::Public, public_router(&shared.state));
        }
        if let Some(credentials) = credentials {
            accept_all(&shared, credentials, Listener::Credentials, credential_router(&shared.state));
        }
        upkeep(&shared);
        Ok(Running { address, public_address, credential_address, shared })
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    inbound::listen(address).map_err(|source| StartError::Bind { address, source })
}

fn bind_to(address: Option<SocketAddr>) -> Result<Option<TcpListener>, StartError> {
    match address {
        Some(address) => bind(address).map(Some),
        None => Ok(None),
    }
}

fn local_of(
    listener: Option<&TcpListener>,
    asked: Option<SocketAddr>,
) -> Result<Option<SocketAddr>, StartError> {
    listener.zip(asked).map(|(listener, asked)| local(listener, asked)).transpose()
}

fn local(listener: &TcpListener, address: SocketAddr) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::Bind { address, source })
}

/// A server that runs. Dropping it does not stop it.
pub struct Running {
    /// Where TLS is spoken.
    pub address: SocketAddr,
    /// Where plain HTTP is spoken.
    pub public_address: Option<SocketAddr>,
    /// Where the credential store is spoken to.
    pub credential_address: Option<SocketAddr>,
    shared: Arc<Shared>,
}

impl Running {
    /// Presents another certificate from the next handshake on.
    pub fn replace_certificate(&self, certificate: Arc<CertifiedKey>) {
        self.shared.presented.replace(certificate);
    }

    /// Accepts client certificates below other roots from the next handshake on. Connections that stand stay.
    ///
    /// # Errors
    /// [`TlsError`]; the roots before stay in force.
    pub fn replace_client_roots(&self, roots: &[Vec<u8>]) -> Result<(), TlsError> {
        let config = tls::config(Arc::clone(&self.shared.presented), roots)?;
        let credential_config = tls::credential_config(Arc::clone(&self.shared.presented), roots)?;
        *self.shared.tls.write() = config;
        *self.shared.credential_tls.write() = credential_config;
        Ok(())
    }

    /// Connections open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.by_address.lock().values().sum()
    }

    /// Accepts no more, lets requests under way finish, and ends. False when some had not finished within
    /// [`ServerOptions::drain_timeout`] and were cut off.
    pub async fn stop(self) -> bool {
        let shared = &self.shared;
        shared.stopping.cancel();
        shared.tracker.close();
        let drained = tokio::time::timeout(shared.options.drain_timeout, shared.tracker.wait()).await.is_ok();
        shared.kill.cancel();
        shared.tracker.wait().await;
        drained
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("address", &self.address)
            .field("public_address", &self.public_address)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
enum Listener {
    Tls,
    Public,
    Credentials,
}

/// How long a connection without a request is kept.
#[derive(Clone, Copy)]
struct Patience {
    head: Duration,
    idle: Duration,
}

impl Listener {
    fn patience(self, options: &ServerOptions) -> Patience {
        match self {
            Self::Credentials => Patience { head: CREDENTIALS_IDLE, idle: CREDENTIALS_IDLE },
            Self::Tls | Self::Public => Patience { head: options.head_timeout, idle: options.idle_timeout },
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Public => "public",
            Self::Credentials => "credentials",
        }
    }
}

fn accept_all(shared: &Arc<Shared>, listener: TcpListener, kind: Listener, router: Router) {
    let shared = Arc::clone(shared);
    let tracker = shared.tracker.clone();
    tracker.spawn(async move {
        let _task = telemetry::tasks::guard("server-accept");
        loop {
            let accepted = tokio::select! {
                () = shared.stopping.cancelled() => return,
                accepted = accept(&shared, &listener) => accepted,
            };
            let Some((stream, address, place)) = accepted else { continue };
            let (connection, router) = (Arc::clone(&shared), router.clone());
            shared.tracker.spawn(async move {
                let _place = place;
                let _task = telemetry::tasks::guard("server-connection");
                let _gauge = connection.state.metrics().connection(kind.name());
                let kill = connection.kill.clone();
                let work = async {
                    match kind {
                        Listener::Tls | Listener::Credentials => {
                            connection::over_tls(connection, stream, address, router, kind).await
                        }
                        Listener::Public => {
                            connection::in_the_open(connection, stream, address, router).await
                        }
                    }
                };
                tokio::select! {
                    () = kill.cancelled() => {}
                    () = work => {}
                }
            });
        }
    });
}

/// The next connection, once there is room for it.
async fn accept(shared: &Arc<Shared>, listener: &TcpListener) -> Option<(TcpStream, IpAddr, Place)> {
    let permit = Arc::clone(&shared.permits).acquire_owned().await.ok()?;
    let (stream, address) = match listener.accept().await {
        Ok(accepted) => accepted,
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            return None;
        }
    };
    let address = address.ip().to_canonical();
    let place = Place::take(shared, permit, address);
    if place.is_none() {
        shared.state.metrics().refused("connections-per-address");
    }
    // Answers are small: waiting to fill a segment would only delay them.
    let _ = stream.set_nodelay(true);
    place.map(|place| (stream, address, place))
}

/// A connection's place among all and among those of its address.
struct Place {
    shared: Arc<Shared>,
    address: IpAddr,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    fn take(shared: &Arc<Shared>, permit: OwnedSemaphorePermit, address: IpAddr) -> Option<Self> {
        let mut counts = shared.by_address.lock();
        let count = counts.entry(address).or_default();
        if *count >= shared.options.connections_per_address_max {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Self { shared: Arc::clone(shared), address, _permit: permit })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.shared.by_address.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// What runs beside the listeners.
fn upkeep(shared: &Arc<Shared>) {
    let (access, stop) = (shared.state.access().clone(), shared.stopping.clone());
    shared.tracker.spawn(async move { access.run(stop).await });
    let (events, store, stop) =
        (shared.state.events().clone(), shared.state.store().clone(), shared.stopping.clone());
    shared.tracker.spawn(async move { events.feed(store, stop).await });
    let shared = Arc::clone(shared);
    shared.tracker.clone().spawn(async move {
        let _task = telemetry::tasks::guard("server-upkeep");
        loop {
            tokio::select! {
                () = shared.stopping.cancelled() => return,
                () = tokio::time::sleep(FORGET_EVERY) => shared.state.limits().forget_idle(),
            }
        }
    });
}
