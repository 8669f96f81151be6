//! Listeners of the terminator.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use http_relay::access_log::AccessLogger;
use http_relay::upstream::{AddressRule, PoolOptions, UpstreamPolicies, Upstreams};
use inbound::{
    Acceptor, ConnectionHandler, OriginLimit, Refusal, ServiceTasks, Slot, Slots, TrustedProxies, WhenFull,
};
use keyless::client::Client;
use outbound::dial::close_with_reset;
use outbound::guard::Guard;
use outbound::http;
use outbound::resolve::{ResolveError, Resolver};
use parking_lot::RwLock;
use rustls::RootCertStore;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::Options;
use super::client_auth::{BadClientCrls, ClientAuthenticator};
use super::health::HealthChecks;
use super::hello::{self, CurrentSites};
use super::keeper::{CertificateLoadError, Keeper, LoadedCertificates};
use super::metrics::{EdgeMetrics, End};
use super::routes::{LiveRoutes, Routes};
use super::staples::Staples;
use super::terminator::{RequestService, Terminator};

/// Errors that prevent the start of the terminator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another process listens on the address, or the process lacks the permission.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Address on which the terminator cannot listen.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The routes are empty, so no connection could be forwarded.
    #[error("no upstream is configured")]
    NoRoute,
    /// The certificates or the ticket keys cannot be loaded.
    #[error(transparent)]
    Keep(#[from] CertificateLoadError),
    /// The TLS library rejected its configuration.
    #[error("cannot set up TLS: {0}")]
    Library(#[from] s2n_tls::error::Error),
    /// The system's DNS resolver cannot be set up.
    #[error("cannot set up the resolver for upstream names: {0}")]
    Resolver(#[from] ResolveError),
    /// The TLS configuration for upstreams is invalid.
    #[error("cannot set up requests to upstreams: {0}")]
    Requests(#[from] rustls::Error),
    /// The access log cannot be opened.
    #[error("cannot write the access log: {0}")]
    AccessLog(io::Error),
    /// The lists of revoked client certificates cannot be used.
    #[error(transparent)]
    ClientCrls(#[from] BadClientCrls),
    /// The HTTP client that fetches OCSP responses cannot be set up.
    #[error("cannot set up the HTTP client for OCSP staples: {0}")]
    Http(#[from] http::SetupError),
}

/// A running terminator. It runs until [`Running::stop`].
pub struct Running {
    /// Address of the listener, with the actual port if port 0 was configured.
    pub address: SocketAddr,
    now: Arc<Notify>,
    routes: LiveRoutes,
    upstreams: Upstreams,
    options: Options,
    reopen: Arc<Notify>,
    tasks: ServiceTasks,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Reads the certificates, starts the listener, and requests signatures through `client`.
///
/// # Errors
/// [`StartError`]
#[crate::boxed]
pub async fn start(
    options: Options,
    client: Client,
    metrics: EdgeMetrics,
) -> Result<(Running, LoadedCertificates), StartError> {
    if options.routes.is_empty() {
        return Err(StartError::NoRoute);
    }
    let current: CurrentSites = Arc::new(RwLock::default());
    let clients = options.client_auth.clone().map(ClientAuthenticator::new).transpose()?.map(Arc::new);
    let staples = Staples::new(options.staples.clone());
    let (keeper, loaded) = Keeper::start(
        &options,
        client,
        metrics.clone(),
        Arc::clone(&current),
        staples.clone(),
        clients.clone(),
    )
    .await?;
    let tasks = ServiceTasks::default();
    let routes = LiveRoutes::new(options.routes.clone());
    let config = hello::config(current, routes.clone())?;
    let resolver = Resolver::system()?;
    let fetching =
        options.staples.as_ref().map(|staples| http::Client::new(&resolver, &staples.http)).transpose()?;
    let failed = |source| StartError::Bind { address: options.listen, source };
    let listener = inbound::listen(options.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let reopen = Arc::default();
    let request_service = request_service(&options, address, &resolver, &tasks, &metrics, &reopen)?;
    metrics.set_connections_max(options.connections_max);
    let counted = metrics.clone();
    let shared = Arc::new(Terminator {
        config,
        routes: routes.clone(),
        request_service,
        clients: clients.clone(),
        resolver,
        metrics,
        handshake_timeout: options.handshake_timeout,
        connect_timeout: options.connect_timeout,
        idle: options.idle,
    });
    let upstreams = shared.request_service.upstreams.clone();
    let (connections_max, per_address) = (options.connections_max, options.per_address());
    let proxies = TrustedProxies::new(&options.trusted_proxies);
    let (now, swept) = (Arc::default(), upstreams.clone());
    let running = Running { address, now, routes, upstreams, options, reopen, tasks };
    running.tasks.spawn(keeper.keep(Arc::clone(&running.now), running.tasks.stopping()));
    if let Some(http) = fetching {
        let (reload_signal, stop) = (Arc::clone(&running.now), running.tasks.stopping());
        running.tasks.spawn(staples.fetch(http, counted, reload_signal, stop));
    }
    let checks = HealthChecks {
        routes: running.routes.clone(),
        upstreams: swept.clone(),
        resolver: shared.resolver.clone(),
        metrics: shared.metrics.clone(),
        tasks: running.tasks.clone(),
    };
    running.tasks.spawn(checks.keep());
    if let Some(clients) = clients {
        running.tasks.spawn(clients.keep(running.options.reload, running.tasks.stopping()));
    }
    running.tasks.spawn(swept.sweep(running.tasks.stopping()));
    let slots = Slots::limited(connections_max, OriginLimit::PerNetwork(per_address)).behind(proxies);
    Acceptor::new(&running.tasks, slots, WhenFull::EvictSilent).start(listener, shared);
    Ok((running, loaded))
}

/// Sets up the pool and the access log for the forwarding of HTTP requests.
fn request_service(
    options: &Options,
    own: SocketAddr,
    resolver: &Resolver,
    tasks: &ServiceTasks,
    metrics: &EdgeMetrics,
    reopen: &Arc<Notify>,
) -> Result<RequestService, StartError> {
    let pool = PoolOptions {
        policies: UpstreamPolicies::default(),
        // Only the operator configures upstreams, so link-local addresses are safe here.
        guard: Guard { allow_link_local: true, ..Guard::default() },
        address_rule: AddressRule::default(),
        connections_max: options.upstream_connections_max,
        per_host_max: options.connections_per_upstream(&options.routes),
        idle_max: options.upstream_idle_max,
        idle_life: options.upstream_idle,
        connect_timeout: options.connect_timeout,
        response_timeout: options.response_timeout,
        idle: options.idle,
    };
    // Each upstream with TLS has its own roots, so the shared client needs none.
    let roots = RootCertStore::empty();
    let upstreams =
        Upstreams::new(&pool, vec![own], resolver.clone(), roots, tasks.clone(), metrics.reuse())?;
    let access_log = AccessLogger::start(
        options.access_log.as_ref(),
        options.access_log_query,
        metrics.access_lines_dropped(),
        tasks,
        reopen,
        "edge request",
    );
    let access_log = access_log.map_err(StartError::AccessLog)?;
    let trusted = options.trusted_proxies.clone();
    Ok(RequestService {
        upstreams,
        access_log,
        tasks: tasks.clone(),
        trusted,
        head_timeout: options.head_timeout,
        keep_alive: options.keep_alive,
    })
}

impl Running {
    /// Checks the files of certificates and ticket keys immediately, and reopens the access log.
    pub fn reload(&self) {
        self.now.notify_one();
        self.reopen.notify_one();
    }

    /// Replaces the routes. Open connections continue. Returns whether the routes differ from the old ones.
    pub fn change_routes(&self, routes: Routes) -> bool {
        self.upstreams.limit_per_host(self.options.connections_per_upstream(&routes));
        self.routes.change(routes)
    }

    /// Stops accepting connections, and waits up to `grace` for open connections to end. Returns false if it had to abort some
    /// connections.
    pub async fn stop(self, grace: Duration) -> bool {
        self.tasks.close(grace).await
    }
}

impl ConnectionHandler for Terminator {
    async fn serve(self: Arc<Self>, stream: TcpStream, client: SocketAddr, slot: &mut Slot) {
        let _live = telemetry::tasks::guard("edge-connection");
        let _open = self.metrics.connection();
        let end = self.connection(stream, client, &slot.silence()).await;
        self.metrics.ended(end);
    }

    fn refused(&self, stream: TcpStream, reason: Refusal) {
        self.metrics.refused(reason.name());
        close_with_reset(stream);
    }

    fn evicted(&self) {
        self.metrics.refused(Refusal::Evicted.name());
    }

    fn cut_off(&self) {
        self.metrics.ended(End::CutOff);
    }
}
