//! Who is let in. Places for connections are taken by those who have shown who they are; those who have not yet have few,
//! and one address only some of these, so that nobody without a certificate keeps anybody out.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use x509::Certificate;

use super::{Protocol, Shared, connection, native};
use crate::tenant::Identity;

/// TLS handshakes under way, some 50 KB each: at 1 ms of a processor a handshake, half a second's worth.
pub const HANDSHAKES_MAX: usize = 512;
/// Of one address: a terminator has one connection, a host with many behind it some. Of IPv6 one address is a whole /64,
/// of which any host may have all.
pub(super) const HANDSHAKES_PER_ADDRESS_MAX: usize = 64;
/// After an error of `accept` (no descriptors left), before the next try.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The places there are.
pub(super) struct Door {
    /// Of clients that have shown who they are.
    known: Arc<Semaphore>,
    /// Of local ones: those from elsewhere cannot take theirs.
    local: Arc<Semaphore>,
    /// Of other nodes: clients cannot take theirs.
    nodes: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A handshake under way, until dropped.
struct Handshake {
    address: IpAddr,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    _permit: OwnedSemaphorePermit,
}

impl Door {
    pub(super) fn new(connections_max: usize) -> Self {
        Self {
            known: Arc::new(Semaphore::new(connections_max)),
            local: Arc::new(Semaphore::new(connections_max)),
            nodes: Arc::new(Semaphore::new(connections_max)),
            handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            by_address: Arc::default(),
        }
    }

    fn handshake(&self, address: IpAddr) -> Option<Handshake> {
        let address = site(address);
        let permit = Arc::clone(&self.handshakes).try_acquire_owned().ok()?;
        let mut counts = self.by_address.lock();
        let count = counts.entry(address).or_default();
        if *count >= HANDSHAKES_PER_ADDRESS_MAX {
            return None;
        }
        *count += 1;
        Some(Handshake { address, by_address: Arc::clone(&self.by_address), _permit: permit })
    }
}

fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut counts = self.by_address.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// Why a connection did not come to be, or ended, other than by itself.
mod end {
    pub(super) const FULL: &str = "full";
    pub(super) const NO_NODE: &str = "no-node";
    pub(super) const NO_HANDSHAKE: &str = "no-handshake";
    pub(super) const REFUSED: &str = "refused";
    pub(super) const TIMED_OUT: &str = "handshake-timed-out";
    pub(super) const STOPPED: &str = "stopped";
    pub(super) const EXPIRED: &str = "certificate-ended";
    pub(super) const DISMISSED: &str = "clients-changed";
}

pub(super) async fn accept_tcp(shared: Arc<Shared>, listener: TcpListener, protocol: Protocol) {
    loop {
        let accepted = tokio::select! {
            () = shared.stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Some((stream, address)) = or_pause(accepted).await else { continue };
        match shared.door.handshake(address.ip()) {
            Some(handshake) => {
                shared.run(over_tls(Arc::clone(&shared), stream, address, protocol, handshake));
            }
            None => shared.metrics.connection_ended(end::FULL),
        }
    }
}

pub(super) async fn accept_unix(shared: Arc<Shared>, listener: UnixListener, protocol: Protocol) {
    loop {
        let accepted = tokio::select! {
            () = shared.stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Some((stream, _)) = or_pause(accepted).await else { continue };
        match Arc::clone(&shared.door.local).try_acquire_owned() {
            Ok(permit) => shared.run(over_unix(Arc::clone(&shared), stream, protocol, permit)),
            Err(_) => shared.metrics.connection_ended(end::FULL),
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

async fn over_tls(
    shared: Arc<Shared>,
    stream: TcpStream,
    address: SocketAddr,
    protocol: Protocol,
    handshake: Handshake,
) -> &'static str {
    // Replies are written whole: waiting for more only delays them.
    let _ = stream.set_nodelay(true);
    let (config, leave) = {
        let tls =
            if matches!(protocol, Protocol::Nodes) { shared.nodes_tls.read() } else { shared.tls.read() };
        let Some(tls) = tls.as_ref() else { return end::REFUSED };
        let config = match protocol {
            Protocol::Keyless => &tls.configs.keyless,
            Protocol::Native | Protocol::Nodes => &tls.configs.native,
        };
        // Of those who came in by these roots.
        (Arc::clone(config), tls.dismissed.child_token())
    };
    let shaking = TlsAcceptor::from(config).accept(stream);
    let shaking = tokio::time::timeout(shared.options.handshake_timeout, shaking);
    let stream = tokio::select! {
        () = shared.stopping.cancelled() => return end::STOPPED,
        outcome = shaking => match outcome {
            Ok(Ok(stream)) => stream,
            // Somebody looked whether anybody listens.
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                tracing::debug!(%address, "a client went before it said who it is");
                return end::NO_HANDSHAKE;
            }
            Ok(Err(error)) => {
                tracing::info!(%address, %error, "a client was refused");
                return end::REFUSED;
            }
            Err(_) => return end::TIMED_OUT,
        },
    };
    drop(handshake);
    let chain = stream.get_ref().1.peer_certificates();
    let identity = Identity::of_chain(chain);
    let is_node = matches!(protocol, Protocol::Nodes);
    let identity = if is_node { identity.into_node() } else { identity };
    if !shared.lets_in(&identity) {
        tracing::info!(%address, "a node was refused that is none of those there are");
        return end::NO_NODE;
    }
    let places = if is_node { &shared.door.nodes } else { &shared.door.known };
    let Ok(_permit) = Arc::clone(places).try_acquire_owned() else {
        tracing::warn!(%address, "there are as many connections as may be (keys.connections_max)");
        return end::FULL;
    };
    let place = if is_node { Ok(None) } else { shared.tenants.connection(&identity).map(Some) };
    let _place = match place {
        Ok(place) => place,
        Err(tenant) => {
            tracing::warn!(%address, tenant, "the tenant has as many connections as it may");
            return end::FULL;
        }
    };
    let ends = ends_in(chain, address);
    let known_as = identity.clone();
    let serving = serve(Arc::clone(&shared), stream, identity, shared.options.idle, protocol, leave.clone());
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = shared.let_out(&known_as), if is_node => {
            leave.cancel();
            serving.await;
            return end::NO_NODE;
        }
        () = tokio::time::sleep(ends) => {
            leave.cancel();
            // What is under way is answered.
            serving.await;
            return end::EXPIRED;
        }
    };
    if leave.is_cancelled() && !shared.stopping.is_cancelled() { end::DISMISSED } else { ended }
}

/// How long the client's certificate holds from now on; who it is, is in the log.
fn ends_in(chain: Option<&[CertificateDer<'_>]>, address: SocketAddr) -> Duration {
    let leaf = chain.and_then(<[_]>::first).and_then(|leaf| Certificate::parse(leaf).ok());
    let Some(leaf) = leaf else { return Duration::MAX };
    tracing::info!(%address, subject = leaf.subject.text, serial = %leaf.serial, "a client was let in");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let left = u64::try_from(leaf.not_after.0).unwrap_or_default().saturating_add(1).saturating_sub(now);
    Duration::from_secs(left)
}

async fn over_unix(
    shared: Arc<Shared>,
    stream: UnixStream,
    protocol: Protocol,
    _permit: OwnedSemaphorePermit,
) -> &'static str {
    let (idle, leave) = (shared.options.socket_idle, shared.stopping.child_token());
    serve(shared, stream, Identity::socket(), idle, protocol, leave).await
}

/// `idle` is the Keyless protocol's: clients of the native one keep their connection. At `leave` nothing more is read.
async fn serve<S>(
    shared: Arc<Shared>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_counted_by_site() {
        let door = Door::new(1);
        let shake = |address: &str| door.handshake(address.parse().unwrap());
        let held: Vec<_> =
            (0..HANDSHAKES_PER_ADDRESS_MAX).map(|at| shake(&format!("2001:db8::{at:x}")).unwrap()).collect();
        assert!(shake("2001:db8::ffff").is_none(), "another address of the same host");
        assert!(shake("2001:db8:0:1::1").is_some());
        assert!(shake("::ffff:192.0.2.1").is_some());
        drop(held);
        assert!(shake("2001:db8::ffff").is_some());
    }
}
