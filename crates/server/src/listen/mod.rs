//! Listeners: TLS for the API, plain HTTP for public data; with connection limits and graceful shutdown.

mod body;
mod connection;
mod context;
mod executor;
mod figures;
mod listener;
mod memory;
mod options;
mod reader;
mod stream;
mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use inbound::{Acceptor, ConnectionHandler, Refusal, ServiceTasks, Slot, WhenFull};
use parking_lot::RwLock;
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};

use crate::router::{credential_router, public_router, router, with_web_console};
use crate::state::State;
use context::{ListenerSlots, ServerContext};
use listener::Listener;
use tls::CurrentCertificate;

pub use figures::{Documents, serve_metrics};
pub use options::{Console, ServerOptions, StartError};
pub use tls::{TlsError, server_certificate};

/// The HTTP server; see [`Server::start`].
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Starts listening, and serves until [`Running::stop`].
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(options: ServerOptions, state: State) -> Result<Running, StartError> {
        let presented = Arc::new(CurrentCertificate::new(Arc::clone(&options.certificate)));
        let tls = tls::config(Arc::clone(&presented), &options.client_roots)?;
        let credential_tls = tls::credential_config(Arc::clone(&presented), &options.client_roots)?;
        let listener = bind(options.listen)?;
        let public = bind_optional(options.public)?;
        let credentials = bind_optional(options.credentials)?;
        let address = local(&listener, options.listen)?;
        let public_address = local_address(public.as_ref(), options.public)?;
        let credential_address = local_address(credentials.as_ref(), options.credentials)?;
        let shared = Arc::new(ServerContext {
            connection_slots: ListenerSlots::new(&options),
            tasks: ServiceTasks::stopped_by(state.stopping().clone()),
            presented,
            tls: RwLock::new(tls),
            credential_tls: RwLock::new(credential_tls),
            options,
            state,
        });
        let (api, _) = router(&shared.state);
        let api = match shared.options.console {
            Some(console) => with_web_console(&shared.state, api, console),
            None => api,
        };
        spawn_accept_loop(&shared, listener, Listener::Tls, api);
        if let Some(public) = public {
            spawn_accept_loop(&shared, public, Listener::Public, public_router(&shared.state));
        }
        if let Some(credentials) = credentials {
            spawn_accept_loop(&shared, credentials, Listener::Credentials, credential_router(&shared.state));
        }
        if let Some(upkeep) = shared.state.take_background_tasks() {
            upkeep.start(&shared.tasks);
        }
        Ok(Running { address, public_address, credential_address, shared })
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    inbound::listen(address).map_err(|source| StartError::Bind { address, source })
}

fn bind_optional(address: Option<SocketAddr>) -> Result<Option<TcpListener>, StartError> {
    match address {
        Some(address) => bind(address).map(Some),
        None => Ok(None),
    }
}

fn local_address(
    listener: Option<&TcpListener>,
    configured: Option<SocketAddr>,
) -> Result<Option<SocketAddr>, StartError> {
    listener.zip(configured).map(|(listener, configured)| local(listener, configured)).transpose()
}

fn local(listener: &TcpListener, address: SocketAddr) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::Bind { address, source })
}

/// A running server. Dropping this value does not stop the server.
pub struct Running {
    /// Address of the TLS listener.
    pub address: SocketAddr,
    /// Address of the plain HTTP listener, if any.
    pub public_address: Option<SocketAddr>,
    /// Address of the credential store's listener, if any.
    pub credential_address: Option<SocketAddr>,
    shared: Arc<ServerContext>,
}

impl Running {
    /// Replaces the server certificate, effective with the next handshake.
    pub fn replace_certificate(&self, certificate: Arc<CertifiedKey>) {
        self.shared.presented.replace(certificate);
    }

    /// Replaces the roots of client certificates, effective with the next handshake. Existing connections continue.
    ///
    /// # Errors
    /// [`TlsError`]; the previous roots remain in effect.
    pub fn replace_client_roots(&self, roots: &[Vec<u8>]) -> Result<(), TlsError> {
        let config = tls::config(Arc::clone(&self.shared.presented), roots)?;
        let credential_config = tls::credential_config(Arc::clone(&self.shared.presented), roots)?;
        *self.shared.tls.write() = config;
        *self.shared.credential_tls.write() = credential_config;
        Ok(())
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connection_slots.in_use()
    }

    /// Shuts down gracefully: accepts no more connections and waits for requests in progress. Returns false when some did not
    /// finish within [`ServerOptions::drain_timeout`] and were aborted.
    pub async fn stop(self) -> bool {
        self.shared.tasks.clone().close(self.shared.options.drain_timeout).await
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

fn spawn_accept_loop(shared: &Arc<ServerContext>, listener: TcpListener, kind: Listener, router: Router) {
    let slots = shared.connection_slots.of(kind).slots.clone();
    let acceptor = Acceptor::new(&shared.tasks, slots, WhenFull::EvictSilent);
    let service = Arc::new(ListenerService { shared: Arc::clone(shared), kind, router });
    shared.tasks.spawn(async move {
        let _task = telemetry::tasks::guard("server-accept");
        acceptor.run(&listener, service).await;
    });
}

/// Serves the connections of one listener.
struct ListenerService {
    shared: Arc<ServerContext>,
    kind: Listener,
    router: Router,
}

impl ConnectionHandler for ListenerService {
    async fn serve(self: Arc<Self>, stream: TcpStream, client: SocketAddr, slot: &mut Slot) {
        let _task = telemetry::tasks::guard("server-connection");
        let _gauge = self.shared.state.metrics().connection(self.kind.name());
        let (shared, router) = (Arc::clone(&self.shared), self.router.clone());
        let (address, silence) = (client.ip().to_canonical(), slot.silence());
        match self.kind {
            Listener::Tls | Listener::Credentials => {
                connection::serve_tls(shared, stream, (address, silence), router, self.kind).await;
            }
            Listener::Public => {
                connection::serve_plain_http(shared, stream, (address, silence), router).await
            }
        }
    }

    fn refused(&self, _: TcpStream, reason: Refusal) {
        self.shared.state.metrics().connection_refused(self.kind.name(), reason.name());
    }

    fn evicted(&self) {
        self.shared.state.metrics().connection_refused(self.kind.name(), Refusal::Evicted.name());
    }
}
