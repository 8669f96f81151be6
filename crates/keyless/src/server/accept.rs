//! Accepting and serving connections over TLS and Unix sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use inbound::{ConnectionHandler, Refusal, Slot};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, unix};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use x509::Certificate;

use super::options::Options;
use super::state::ServerState;
use super::{connection, native};
use crate::tenant::Identity;

/// Reasons why a connection was rejected or closed, as used in metrics.
mod end {
    pub(super) const FULL: &str = "full";
    pub(super) const NO_NODE: &str = "no-node";
    pub(super) const NO_HANDSHAKE: &str = "no-handshake";
    pub(super) const REFUSED: &str = "refused";
    pub(super) const TIMED_OUT: &str = "handshake-timed-out";
    pub(super) const STOPPED: &str = "stopped";
    pub(super) const EXPIRED: &str = "certificate-ended";
    pub(super) const CLIENTS_CHANGED: &str = "clients-changed";
    pub(super) const CUT_OFF: &str = "cut-off";
}

#[derive(Clone, Copy)]
pub(super) enum Protocol {
    Keyless,
    Native,
    /// The native protocol, for other nodes.
    Nodes,
}

/// State for serving the connections of one listener.
pub(super) struct Connections {
    pub(super) shared: Arc<ServerState>,
    pub(super) protocol: Protocol,
}

impl Connections {
    fn record_refusal(&self, reason: Refusal) {
        self.shared.metrics.connection_ended(reason.name());
    }

    fn aborted(&self) {
        self.shared.metrics.connection_ended(end::CUT_OFF);
    }
}

impl ConnectionHandler<TcpListener> for Connections {
    /// Serves a TLS connection. `slot` is held during the handshake.
    async fn serve(self: Arc<Self>, stream: TcpStream, address: SocketAddr, slot: &mut Slot) {
        let shared = Arc::clone(&self.shared);
        // Boxed: a handshake and its connection are 18 KB, too much to move.
        self.shared.counted(Box::pin(over_tls(shared, stream, address, self.protocol, slot))).await;
    }

    fn refused(&self, _: TcpStream, reason: Refusal) {
        self.record_refusal(reason);
    }

    fn evicted(&self) {
        self.record_refusal(Refusal::Evicted);
    }

    fn cut_off(&self) {
        self.aborted();
    }
}

impl ConnectionHandler<UnixListener> for Connections {
    async fn serve(self: Arc<Self>, stream: UnixStream, _: unix::SocketAddr, _: &mut Slot) {
        self.shared.counted(serve_unix(Arc::clone(&self.shared), stream, self.protocol)).await;
    }

    fn refused(&self, _: UnixStream, reason: Refusal) {
        self.record_refusal(reason);
    }

    fn cut_off(&self) {
        self.aborted();
    }
}

async fn over_tls(
    shared: Arc<ServerState>,
    stream: TcpStream,
    address: SocketAddr,
    protocol: Protocol,
    handshake: &mut Slot,
) -> &'static str {
    let (config, leave) = {
        let tls =
            if matches!(protocol, Protocol::Nodes) { shared.nodes_tls.read() } else { shared.tls.read() };
        let Some(tls) = tls.as_ref() else { return end::REFUSED };
        let config = match protocol {
            Protocol::Keyless => &tls.configs.keyless,
            Protocol::Native | Protocol::Nodes => &tls.configs.native,
        };
        // The token is cancelled when these roots are replaced.
        (Arc::clone(config), tls.superseded.child_token())
    };
    let stopping = shared.tasks.stopping();
    let handshaking = perform_handshake(stream, config, &shared.options);
    let stream = tokio::select! {
        () = stopping.cancelled() => return end::STOPPED,
        outcome = handshaking => match outcome {
            Ok(stream) => stream,
            // A port probe that closed without sending data.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                tracing::debug!(%address, "a client disconnected before the handshake");
                return end::NO_HANDSHAKE;
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return end::TIMED_OUT,
            Err(error) => {
                tracing::info!(%address, %error, "rejected a client");
                return end::REFUSED;
            }
        },
    };
    handshake.release();
    let chain = stream.get_ref().1.peer_certificates();
    let identity = Identity::of_chain(chain);
    let is_node = matches!(protocol, Protocol::Nodes);
    let identity = if is_node { identity.into_node() } else { identity };
    if !shared.may_connect(&identity) {
        tracing::info!(%address, "rejected an unknown node");
        return end::NO_NODE;
    }
    let slots = if is_node { &shared.slots.nodes } else { &shared.slots.known };
    let Some(_slot) = slots.take(None) else {
        tracing::warn!(%address, "rejected a connection: the maximum number of connections is reached (keys.connections_max)");
        return end::FULL;
    };
    let permit = if is_node { Ok(None) } else { shared.tenants.connection(&identity).map(Some) };
    let _permit = match permit {
        Ok(permit) => permit,
        Err(tenant) => {
            tracing::warn!(%address, tenant, "rejected a connection: the tenant has reached its maximum number of connections");
            return end::FULL;
        }
    };
    let ends = ends_in(chain, address);
    let known_as = identity.clone();
    let serving = serve(Arc::clone(&shared), stream, identity, shared.options.idle, protocol, leave.clone());
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = shared.wait_until_removed(&known_as), if is_node => {
            leave.cancel();
            serving.await;
            return end::NO_NODE;
        }
        () = tokio::time::sleep(ends) => {
            leave.cancel();
            // Pending requests are completed.
            serving.await;
            return end::EXPIRED;
        }
    };
    if leave.is_cancelled() && !stopping.is_cancelled() { end::CLIENTS_CHANGED } else { ended }
}

/// Performs the handshake, within the timeouts for the ClientHello and for the rest.
async fn perform_handshake(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    options: &Options,
) -> io::Result<TlsStream<TcpStream>> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let hello = LazyConfigAcceptor::new(Acceptor::default(), stream);
    let start = tokio::time::timeout(options.hello_timeout, hello).await.map_err(late)??;
    tokio::time::timeout(options.handshake_timeout, start.into_stream(config)).await.map_err(late)?
}

/// Returns the remaining validity of the client's certificate, and logs the client.
fn ends_in(chain: Option<&[CertificateDer<'_>]>, address: SocketAddr) -> Duration {
    let leaf = chain.and_then(<[_]>::first).and_then(|leaf| Certificate::parse(leaf).ok());
    let Some(leaf) = leaf else { return Duration::MAX };
    tracing::info!(%address, subject = leaf.subject.text, serial = %leaf.serial, "accepted a client");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let left = u64::try_from(leaf.not_after.0).unwrap_or_default().saturating_add(1).saturating_sub(now);
    Duration::from_secs(left)
}

async fn serve_unix(shared: Arc<ServerState>, stream: UnixStream, protocol: Protocol) -> &'static str {
    let (idle, leave) = (shared.options.socket_idle, shared.tasks.stopping().child_token());
    serve(shared, stream, Identity::socket(), idle, protocol, leave).await
}

/// Serves a stream with one of the two protocols. `idle` is the idle timeout of the Keyless protocol; the native protocol has none.
/// Once `leave` is cancelled, no further request is read.
async fn serve<S>(
    shared: Arc<ServerState>,
    stream: S,
    identity: Identity,
    idle: Duration,
    protocol: Protocol,
    leave: CancellationToken,
) -> &'static str
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let end = match protocol {
        Protocol::Keyless => connection::serve(shared, stream, identity, idle, leave).await,
        Protocol::Native | Protocol::Nodes => native::serve(shared, stream, identity, leave).await,
    };
    end.name()
}
