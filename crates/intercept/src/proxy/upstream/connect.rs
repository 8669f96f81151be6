//! Making connections to upstreams.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use outbound::Deadline;
use outbound::dial::{DialError, happy_eyeballs};
use outbound::resolve::{Families, ResolveError, Resolver};
use parking_lot::Mutex;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsConnector;

use super::super::target::{Origin, Target};
use super::Sender;
use crate::doors::Doors;
use crate::mint::LeafName;

/// Octets of an upstream's heads.
const HEAD_OCTETS_MAX: usize = 128 << 10;

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
    #[error("there are as many connections as there may be")]
    Full,
    #[error("it closed the connection at once")]
    ClosedAtOnce,
    #[error("it does not speak HTTP: {0}")]
    Http(hyper::Error),
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

/// Makes them.
pub(super) struct Dialler {
    resolver: Resolver,
    /// Offering HTTP/1.1, and HTTP/2 before it. They share sessions, so that the next handshake is a short one.
    http1: TlsConnector,
    http2: TlsConnector,
    own: SocketAddr,
    places: Arc<Semaphore>,
    per_host_max: usize,
    hosts: Arc<Mutex<HashMap<Target, usize>>>,
    doors: Doors,
}

impl Dialler {
    pub(super) fn new(
        resolver: Resolver,
        roots: RootCertStore,
        own: SocketAddr,
        places: Arc<Semaphore>,
        per_host_max: usize,
        doors: Doors,
    ) -> Result<Self, rustls::Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let http1 = TlsConnector::from(Arc::new(config.clone()));
        config.alpn_protocols.insert(0, b"h2".to_vec());
        let http2 = TlsConnector::from(Arc::new(config));
        Ok(Self { resolver, http1, http2, own, places, per_host_max, hosts: Arc::default(), doors })
    }

    /// Who owns the tasks of connections.
    pub(super) fn doors(&self) -> &Doors {
        &self.doors
    }

    /// Whether another connection may be made.
    pub(super) fn has_place(&self) -> bool {
        self.places.available_permits() > 0
    }

    /// A connection that requests can be sent on.
    pub(super) async fn connect(&self, origin: &Origin, deadline: Deadline) -> Result<Sender, NoConnection> {
        let (stream, place) = self.tcp(&origin.target, deadline).await?;
        let Some(server) = &origin.server else { return self.http1(stream, place).await };
        let name = match server {
            LeafName::Ip(address) => ServerName::from(*address),
            LeafName::Dns(name) => ServerName::try_from(name.as_str().to_owned())
                .map_err(|error| NoConnection::Tls(std::io::Error::other(error)))?,
        };
        let connector = if origin.http2 { &self.http2 } else { &self.http1 };
        let handshake = tokio::time::timeout(deadline.remaining(), connector.connect(name, stream)).await;
        let stream = handshake.map_err(|_| NoConnection::Late)?.map_err(NoConnection::Tls)?;
        match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => self.http2(stream, place).await,
            _ => self.http1(stream, place).await,
        }
    }

    /// Octets to a target and back.
    pub(super) async fn tcp(
        &self,
        target: &Target,
        deadline: Deadline,
    ) -> Result<(TcpStream, Place), NoConnection> {
        let place = self.place(target)?;
        let found = match &target.name {
            LeafName::Ip(address) => vec![*address],
            LeafName::Dns(name) => {
                let limit = deadline.remaining();
                self.resolver.resolve(name.as_str(), Families::Both, limit).await?.addresses
            }
        };
        let dialled = happy_eyeballs(&found, target.port, deadline.remaining()).await;
        let (stream, address) = dialled.map_err(|(_, error)| NoConnection::Dial(error))?;
        let to_ourselves = target.port == self.own.port()
            && (address == self.own.ip()
                || self.own.ip().is_unspecified()
                    && stream.local_addr().is_ok_and(|own| own.ip() == address));
        if to_ourselves {
            return Err(NoConnection::Loop);
        }
        let _ = stream.set_nodelay(true);
        Ok((stream, place))
    }

    fn place(&self, target: &Target) -> Result<Place, NoConnection> {
        let whole = Arc::clone(&self.places).try_acquire_owned().map_err(|_| NoConnection::Full)?;
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
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(HEAD_OCTETS_MAX as u32)
            .keep_alive_interval(std::time::Duration::from_secs(20))
            .handshake(TokioIo::new(stream))
            .await
            .map_err(NoConnection::Http)?;
        self.doors.spawn_bounded(async move {
            let _live = telemetry::tasks::guard("proxy-upstream");
            let _place = place;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to an upstream broke");
            }
        });
        Ok(Sender::Http2(sender))
    }
}
