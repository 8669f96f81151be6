//! The server: mutual TLS on TCP, and Unix sockets for the same host; for the Keyless protocol and the native one.

mod accept;
mod arriving;
mod caller;
mod connection;
mod dispatch;
mod entry;
mod memory;
mod native;
mod options;
mod outbox;
mod relay;
mod relay_limit;
mod replies;
mod request;
mod service;
mod slots;
mod socket;
mod state;
mod tls;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inbound::{Acceptor, ServiceTasks, WhenFull};
use keys::TicketKeys;
use parking_lot::RwLock;
use tokio::net::{TcpListener, UnixListener};

use crate::KeySet;
use crate::flow::SAMPLE_EVERY;
use crate::in_flight::ConcurrencyLimit;
use crate::metrics::Metrics;
use crate::stage::Stage;
use crate::tenant::{TenantError, TenantOptions, Tenants};
use accept::{Connections, Protocol};
use memory::ByteBudget;
use relay_limit::RelayLimit;
use slots::ConnectionSlots;
use state::ServerState;
use tls::Presented;

pub use crate::limits::{REMOTE_MAX, STREAM_MAX};
pub use crate::wire::PORT;
pub use native::CALLS_MAX;
pub use options::{NodesOptions, Options};
pub use relay_limit::RELAYED_MAX;
pub use service::{BATCH_MAX, INPUT_MAX};
pub use slots::HANDSHAKES_MAX;
pub use socket::BoundSocket;
pub use tls::{TlsError, TlsOptions, mutual_tls};

/// Timeout of a stop: the time for pending requests of connections, and two seconds more.
const STOP_WITHIN: Duration = connection::DRAIN.saturating_add(Duration::from_secs(2));

/// Reason why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The options contain neither an address nor a socket.
    #[error("no listen address or socket is configured")]
    Nowhere,
    /// The native protocol needs TLS, but no TLS options are set.
    #[error("the native protocol requires TLS: configure the TLS listener and its certificate")]
    NoTls,
    /// A tenant is invalid.
    #[error(transparent)]
    Tenant(#[from] TenantError),
    /// Another process listens at the address or socket, or the process lacks the permission.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Address or path of the listener.
        address: String,
        /// Operating system error, for example for an address that is in use.
        source: io::Error,
    },
    /// The certificate, its key or a root is invalid.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system cannot start threads.
    #[error("cannot start signing threads: {0}")]
    Threads(io::Error),
}

/// A running server. It runs until [`Running::stop`].
pub struct Running {
    /// Address of the TLS listener.
    pub address: Option<SocketAddr>,
    /// Address of the native protocol's TLS listener.
    pub native: Option<SocketAddr>,
    /// Address of the listener for other nodes.
    pub nodes: Option<SocketAddr>,
    shared: Arc<ServerState>,
    sockets: Vec<BoundSocket>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Starts the listeners, and signs with `keys`.
///
/// # Errors
/// [`StartError`]
#[crate::boxed]
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
    let stage = Stage::start(options.processors.max(1), options.batches).map_err(StartError::Threads)?;
    crate::metrics::register_stage(&metrics, &stage);
    options.records.iter().for_each(|records| crate::records::register(&metrics, records));
    let is_local = options.socket.is_some() || options.native_socket.is_some();
    let kinds = [options.tls.is_some(), is_local, options.nodes.is_some()];
    metrics.connections_max(options.connections_max * kinds.into_iter().filter(|kind| *kind).count());
    let tickets = Some(options.ticket_life).filter(|life| !life.is_zero()).map(TicketKeys::new);
    let tenants = Tenants::new(metrics.clone(), options.connections_max);
    tenants.change(&options.tenants, &stage)?;
    let shared = Arc::new(ServerState {
        keys,
        stage,
        tenants,
        metrics,
        tickets,
        remote: ConcurrencyLimit::default(),
        relays: RelayLimit::default(),
        byte_budget: ByteBudget::default(),
        tls: RwLock::new(None),
        nodes_tls: RwLock::new(None),
        slots: ConnectionSlots::new(options.connections_max),
        tasks: ServiceTasks::default(),
        options,
    });
    let present = |(configs, options)| Presented::new(configs, options, &shared.tasks.stopping());
    *shared.tls.write() = tls.map(present);
    *shared.nodes_tls.write() = nodes_tls.map(present);
    let listeners = [(keyless, Protocol::Keyless), (native, Protocol::Native), (nodes, Protocol::Nodes)];
    let mut addresses = [None; 3];
    for (at, (listener, protocol)) in listeners.into_iter().enumerate() {
        if let Some(listener) = listener {
            addresses[at] = listener.local_addr().ok();
            let connections = Connections { shared: Arc::clone(&shared), protocol };
            let acceptor = Acceptor::new(
                &shared.tasks,
                slots::handshakes(&shared.options.trusted_proxies),
                WhenFull::EvictSilent,
            );
            acceptor.start(listener, Arc::new(connections));
        }
    }
    let mut sockets = Vec::new();
    for (socket, protocol) in [(keyless_socket, Protocol::Keyless), (native_socket, Protocol::Native)] {
        if let Some((bound, listener)) = socket {
            let connections = Connections { shared: Arc::clone(&shared), protocol };
            let acceptor = Acceptor::new(&shared.tasks, shared.slots.local.clone(), WhenFull::Refuse);
            acceptor.start(listener, Arc::new(connections));
            sockets.push(bound);
        }
    }
    shared.tasks.spawn(sample_flows(Arc::clone(&shared)));
    let [address, native, nodes] = addresses;
    Ok(Running { address, native, nodes, shared, sockets })
}

/// Samples the flow monitors (L = λW) of all tenants and destinations until the server stops.
async fn sample_flows(shared: Arc<ServerState>) {
    let _live = telemetry::tasks::guard("keyless-flows");
    let stopping = shared.tasks.stopping();
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(SAMPLE_EVERY) => shared.sample_flows(Instant::now()),
        }
    }
}

fn bind(address: Option<SocketAddr>) -> Result<Option<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(None) };
    inbound::listen(address).map(Some).map_err(|source| bind_error(address, source))
}

async fn bind_socket(path: Option<&Path>) -> Result<Option<(BoundSocket, UnixListener)>, StartError> {
    let Some(path) = path else { return Ok(None) };
    BoundSocket::at(path).await.map(Some).map_err(|source| bind_error(path.display(), source))
}

fn bind_error(address: impl fmt::Display, source: io::Error) -> StartError {
    StartError::Bind { address: address.to_string(), source }
}

impl Running {
    /// Changes certificate, roots and CRLs for new connections. If a root was removed or a CRL changed, existing connections close
    /// after their pending requests, so that clients must authenticate again.
    ///
    /// # Errors
    /// [`TlsError`]; the old options stay in use.
    pub fn change_tls(&self, options: &TlsOptions) -> Result<(), TlsError> {
        self.change(&self.shared.tls, options)
    }

    /// Changes the TLS options for other nodes, like [`Self::change_tls`].
    ///
    /// # Errors
    /// [`TlsError`]; the old options stay in use.
    pub fn change_nodes_tls(&self, options: &TlsOptions) -> Result<(), TlsError> {
        self.change(&self.shared.nodes_tls, options)
    }

    fn change(&self, presented: &RwLock<Option<Presented>>, options: &TlsOptions) -> Result<(), TlsError> {
        let mut new = Presented::new(tls::configs(options)?, options.clone(), &self.shared.tasks.stopping());
        let mut presented = presented.write();
        if let Some(before) = presented.take() {
            if before.options.accepts_subset_of(options) {
                new.superseded = before.superseded;
            } else {
                before.superseded.cancel();
            }
        }
        *presented = Some(new);
        Ok(())
    }

    /// Changes the tenants and their limits, from the next request on, on every connection.
    ///
    /// # Errors
    /// [`TenantError`]; the old tenants stay in use.
    pub fn change_tenants(&self, tenants: &[TenantOptions]) -> Result<(), TenantError> {
        self.shared.tenants.change(tenants, &self.shared.stage)
    }

    /// Stops accepting connections and requests, answers pending requests for five seconds, and ends. Returns false if requests
    /// were aborted.
    pub async fn stop(self) -> bool {
        let Self { shared, sockets, .. } = self;
        let drained = shared.tasks.clone().close(STOP_WITHIN).await;
        shared.stage.stop().await;
        sockets.iter().for_each(BoundSocket::remove);
        drained
    }
}
