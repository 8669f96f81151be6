//! Who listens.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use keyless::client::Client;
use outbound::dial::close_fast;
use outbound::http;
use outbound::resolve::{ResolveError, Resolver};
use parking_lot::RwLock;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Options;
use super::connection::Shared;
use super::hello;
use super::hello::Current;
use super::keeper::{KeepError, Keeper, Loaded};
use super::metrics::{EdgeMetrics, End};
use super::staples::Staples;

/// After an error of `accept` (no descriptors left), before the next try.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the terminator did not start.
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
    /// Nobody would get a connection.
    #[error("there is no upstream")]
    NoRoute,
    /// Certificates or ticket keys.
    #[error(transparent)]
    Keep(#[from] KeepError),
    /// The TLS library.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] s2n_tls::error::Error),
    /// This machine's resolver.
    #[error("names of upstreams cannot be resolved: {0}")]
    Resolver(#[from] ResolveError),
    /// The HTTP client.
    #[error("staples cannot be fetched: {0}")]
    Http(#[from] http::SetupError),
}

/// A terminator that runs, until [`Running::stop`].
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    tracker: TaskTracker,
    now: Arc<Notify>,
    stopping: CancellationToken,
    kill: CancellationToken,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Reads certificates, listens, and has `client` asked for signatures.
///
/// # Errors
/// [`StartError`]
pub async fn start(
    options: Options,
    client: Client,
    metrics: EdgeMetrics,
) -> Result<(Running, Loaded), StartError> {
    if options.routes.is_empty() {
        return Err(StartError::NoRoute);
    }
    let current: Current = Arc::new(RwLock::default());
    let staples = Staples::new(options.staples.clone());
    let (keeper, loaded) =
        Keeper::start(&options, client, metrics.clone(), Arc::clone(&current), staples.clone()).await?;
    let routes = Arc::new(options.routes.clone());
    let config = hello::config(current, Arc::clone(&routes))?;
    let resolver = Resolver::system()?;
    let fetching =
        options.staples.as_ref().map(|staples| http::Client::new(&resolver, &staples.http)).transpose()?;
    let failed = |source| StartError::Bind { address: options.listen, source };
    let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    metrics.may_be_open(options.connections_max);
    let counted = metrics.clone();
    let shared = Arc::new(Shared {
        config,
        routes,
        resolver,
        metrics,
        handshake_timeout: options.handshake_timeout,
        connect_timeout: options.connect_timeout,
        idle: options.idle,
    });
    let running = Running {
        address,
        tracker: TaskTracker::new(),
        now: Arc::default(),
        stopping: CancellationToken::new(),
        kill: CancellationToken::new(),
    };
    running.tracker.spawn(keeper.keep(Arc::clone(&running.now), running.stopping.clone()));
    if let Some(http) = fetching {
        let (look, stop) = (Arc::clone(&running.now), running.stopping.clone());
        running.tracker.spawn(staples.fetch(http, counted, look, stop));
    }
    let accepting = Accepting {
        shared,
        places: Arc::new(Semaphore::new(options.connections_max)),
        tracker: running.tracker.clone(),
        stopping: running.stopping.clone(),
        kill: running.kill.clone(),
    };
    running.tracker.spawn(accepting.accept(listener));
    Ok((running, loaded))
}

impl Running {
    /// Has the files looked at now.
    pub fn reload(&self) {
        self.now.notify_one();
    }

    /// Takes no more connections, lets those there are come to their end for `grace`, and ends. False when some were cut off.
    pub async fn stop(self, grace: Duration) -> bool {
        self.stopping.cancel();
        self.tracker.close();
        let drained = tokio::time::timeout(grace, self.tracker.wait()).await.is_ok();
        self.kill.cancel();
        self.tracker.wait().await;
        drained
    }
}

struct Accepting {
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    tracker: TaskTracker,
    stopping: CancellationToken,
    kill: CancellationToken,
}

impl Accepting {
    async fn accept(self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                () = self.stopping.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, client)) => self.take(stream, client),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn take(&self, stream: TcpStream, client: SocketAddr) {
        // Closed rather than left waiting: another terminator may have a place.
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.shared.metrics.refused();
            return close_fast(stream);
        };
        let (shared, kill) = (Arc::clone(&self.shared), self.kill.clone());
        self.tracker.spawn(async move {
            let _live = telemetry::tasks::guard("edge-connection");
            let _place = place;
            let _open = shared.metrics.connection();
            let end = tokio::select! {
                () = kill.cancelled() => End::CutOff,
                end = shared.serve(stream, client) => end,
            };
            shared.metrics.ended(end);
        });
    }
}
