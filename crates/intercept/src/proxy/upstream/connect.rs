//! Making connections to upstreams.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use outbound::Deadline;
use outbound::dial::{DialError, happy_eyeballs};
use outbound::resolve::{Families, ResolveError, Resolver};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::target::{Origin, Target};
use super::Sender;
use super::parent::{Link, NoParent, Parent};
use super::policy::{Policies, UpstreamWay};
use super::shared::Http2;
use crate::doors::Doors;
use crate::mint::LeafName;

/// Octets of an upstream's heads.
const HEAD_OCTETS_MAX: usize = 128 << 10;

/// For a place where all are taken, after the connection that waited the longest was closed for it.
const PLACE_WITHIN: Duration = Duration::from_millis(500);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoConnection {
    #[error("its name is not resolved: {0}")]
    Name(#[from] ResolveError),
    #[error("it is not reached: {0}")]
    Dial(DialError),
    #[error("that is this proxy itself")]
    Loop,
    #[error("its TLS is refused: {0}")]
    Tls(std::io::Error),
    #[error("its TLS was not done in its time")]
    Late,
    #[error("the parent proxy {parent}: {why}")]
    Parent { parent: String, why: NoParent },
    #[error("there are as many connections as there may be")]
    Full,
    #[error("it closed the connection at once")]
    ClosedAtOnce,
    #[error("it does not speak HTTP: {0}")]
    Http(hyper::Error),
}

impl NoConnection {
    pub(super) fn by(parent: &Parent, why: NoParent) -> Self {
        Self::Parent { parent: parent.to_string(), why }
    }
}

/// TLS with `server`.
async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    connector: &TlsConnector,
    server: &LeafName,
    stream: S,
    deadline: Deadline,
) -> Result<TlsStream<S>, NoConnection> {
    let name = match server {
        LeafName::Ip(address) => ServerName::from(*address),
        LeafName::Dns(name) => ServerName::try_from(name.as_str().to_owned())
            .map_err(|error| NoConnection::Tls(std::io::Error::other(error)))?,
    };
    let done = tokio::time::timeout(deadline.remaining(), connector.connect(name, stream)).await;
    done.map_err(|_| NoConnection::Late)?.map_err(NoConnection::Tls)
}

/// A place among all connections and among those of a host, until it is dropped.
pub(crate) struct Place {
    _whole: OwnedSemaphorePermit,
    target: Target,
    hosts: Arc<Mutex<HashMap<Target, usize>>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut hosts = self.hosts.lock();
        if let Some(open) = hosts.get_mut(&self.target) {
            *open -= 1;
            if *open == 0 {
                hosts.remove(&self.target);
            }
        }
    }
}

/// Whose tasks, the connection itself among them, end with the service and hold its place.
#[derive(Clone)]
struct Owned {
    doors: Doors,
    place: Arc<Place>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Owned {
    fn execute(&self, work: F) {
        let place = Arc::clone(&self.place);
        self.doors.spawn_bounded(async move {
            let _place = place;
            work.await;
        });
    }
}

/// Makes them.
pub(super) struct Dialler {
    resolver: Resolver,
    policies: Policies,
    own: SocketAddr,
    places: Arc<Semaphore>,
    per_host_max: usize,
    hosts: Arc<Mutex<HashMap<Target, usize>>>,
    doors: Doors,
}

impl Dialler {
    pub(super) fn new(
        resolver: Resolver,
        policies: Policies,
        own: SocketAddr,
        places: Arc<Semaphore>,
        per_host_max: usize,
        doors: Doors,
    ) -> Self {
        Self { resolver, policies, own, places, per_host_max, hosts: Arc::default(), doors }
    }

    /// Whether who answers is held against roots.
    pub(super) fn verifies(&self, origin: &Origin) -> bool {
        self.policies.of_origin(origin).verifies
    }

    /// Who owns the tasks of connections.
    pub(super) fn doors(&self) -> &Doors {
        &self.doors
    }

    /// Whether another connection may be made.
    pub(super) fn has_place(&self) -> bool {
        self.places.available_permits() > 0
    }

    /// The parent that is asked by whole requests for `origin` rather than to connect to it: what is in the clear anyway.
    pub(super) fn asked_by_request(&self, origin: &Origin) -> Option<&Parent> {
        match &self.policies.of_origin(origin).way {
            UpstreamWay::Parent(parent) if origin.server.is_none() => Some(parent),
            _ => None,
        }
    }

    /// A connection that requests can be sent on.
    pub(super) async fn connect(&self, origin: &Origin, deadline: Deadline) -> Result<Sender, NoConnection> {
        if let Some(parent) = self.asked_by_request(origin) {
            let place = self.place(&origin.target, deadline).await?;
            return self.http1(self.to_parent(parent, deadline).await?, place).await;
        }
        let Some(server) = &origin.server else {
            let (link, place) = self.link(&origin.target, &origin.target.name, deadline).await?;
            return self.http1(link, place).await;
        };
        Ok(self.connect_by_tls(origin, server, deadline).await?.0)
    }

    /// One to `origin` as `server`, and the certificate that it showed.
    pub(super) async fn connect_by_tls(
        &self,
        origin: &Origin,
        server: &LeafName,
        deadline: Deadline,
    ) -> Result<(Sender, Option<CertificateDer<'static>>), NoConnection> {
        let (link, place) = self.link(&origin.target, server, deadline).await?;
        let policy = self.policies.of(server);
        let connector = if origin.http2 { &policy.http2 } else { &policy.http1 };
        let stream = handshake(connector, server, link, deadline).await?;
        let (shown, speaks_http2) = {
            let tls = &stream.get_ref().1;
            let own = tls.peer_certificates().and_then(|chain| chain.first()).cloned();
            (own, tls.alpn_protocol() == Some(b"h2"))
        };
        let sender = match speaks_http2 {
            true => self.http2(stream, place).await?,
            false => self.http1(stream, place).await?,
        };
        Ok((sender, shown))
    }

    /// Whether both names are believed and reached alike.
    pub(super) fn treats_alike(&self, one: &LeafName, other: &LeafName) -> bool {
        std::ptr::eq(self.policies.of(one), self.policies.of(other))
    }

    /// Octets to a target and back, by the way that `name` has.
    pub(super) async fn link(
        &self,
        target: &Target,
        name: &LeafName,
        deadline: Deadline,
    ) -> Result<(Link, Place), NoConnection> {
        let place = self.place(target, deadline).await?;
        let UpstreamWay::Parent(parent) = &self.policies.of(name).way else {
            return Ok((Link::Direct(self.dial(target, deadline).await?), place));
        };
        let link = self.to_parent(parent, deadline).await?;
        let asked =
            tokio::time::timeout(deadline.remaining(), parent.connect(link, target, &self.doors)).await;
        let link = asked.unwrap_or(Err(NoParent::Late)).map_err(|why| NoConnection::by(parent, why))?;
        Ok((link, place))
    }

    async fn to_parent(&self, parent: &Parent, deadline: Deadline) -> Result<Link, NoConnection> {
        let reached = async {
            let stream = self.dial(&parent.target, deadline).await?;
            if !parent.tls {
                return Ok(Link::Direct(stream));
            }
            let connector = &self.policies.usual().http1;
            Ok(Link::Tls(Box::new(handshake(connector, &parent.target.name, stream, deadline).await?)))
        };
        reached.await.map_err(|error| NoConnection::by(parent, NoParent::Connection(Box::new(error))))
    }

    async fn dial(&self, target: &Target, deadline: Deadline) -> Result<TcpStream, NoConnection> {
        let found = match &target.name {
            LeafName::Ip(address) => vec![*address],
            LeafName::Dns(name) => {
                let limit = deadline.remaining();
                self.resolver.resolve(name.as_str(), Families::Both, limit).await?.addresses
            }
        };
        let dialled = happy_eyeballs(&found, target.port, deadline.remaining()).await;
        let (stream, _) = dialled.map_err(|(_, error)| NoConnection::Dial(error))?;
        if self.is_own(&stream) {
            return Err(NoConnection::Loop);
        }
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    /// Whether it leads back to where clients find us.
    fn is_own(&self, stream: &TcpStream) -> bool {
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return false };
        let (peer_ip, own) = (peer.ip().to_canonical(), self.own.ip().to_canonical());
        let is_here = peer_ip.is_loopback() || peer_ip == local.ip().to_canonical();
        peer.port() == self.own.port() && (peer_ip == own || own.is_unspecified() && is_here)
    }

    /// One that is free, or that one which was just given up is about to leave.
    async fn place(&self, target: &Target, deadline: Deadline) -> Result<Place, NoConnection> {
        let waiting = Arc::clone(&self.places).acquire_owned();
        let whole = tokio::time::timeout(deadline.remaining().min(PLACE_WITHIN), waiting).await;
        let Ok(Ok(whole)) = whole else { return Err(NoConnection::Full) };
        let mut hosts = self.hosts.lock();
        let open = hosts.entry(target.clone()).or_default();
        if *open >= self.per_host_max {
            return Err(NoConnection::Full);
        }
        *open += 1;
        drop(hosts);
        Ok(Place { _whole: whole, target: target.clone(), hosts: Arc::clone(&self.hosts) })
    }

    async fn http1<S>(&self, stream: S, place: Place) -> Result<Sender, NoConnection>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_OCTETS_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(NoConnection::Http)?;
        self.doors.spawn_bounded(async move {
            let _live = telemetry::tasks::guard("proxy-upstream");
            let _place = place;
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to an upstream broke");
            }
        });
        Ok(Sender::Http1(sender))
    }

    async fn http2<S>(&self, stream: S, place: Place) -> Result<Sender, NoConnection>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) =
            http2::Builder::new(Owned { doors: self.doors.clone(), place: Arc::new(place) })
                .timer(TokioTimer::new())
                .max_header_list_size(HEAD_OCTETS_MAX as u32)
                .keep_alive_interval(Duration::from_secs(20))
                .handshake(TokioIo::new(stream))
                .await
                .map_err(NoConnection::Http)?;
        // Behind a lock, so that it can be asked what the upstream allows. Its task alone keeps it.
        let connection = Arc::new(Mutex::new(connection));
        let asked = Arc::downgrade(&connection);
        let allowed = move || asked.upgrade().map_or(0, |asked| asked.lock().current_max_send_streams());
        self.doors.spawn_bounded(async move {
            let _live = telemetry::tasks::guard("proxy-upstream");
            let served = poll_fn(move |cx| Pin::new(&mut *connection.lock()).poll(cx));
            if let Err(error) = served.await {
                tracing::debug!(%error, "a connection to an upstream broke");
            }
        });
        Ok(Sender::Http2(Http2::new(sender, allowed)))
    }
}
