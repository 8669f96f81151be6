//! Asking others to sign: one connection a server, kept, shared by everybody, many requests under way on it, replies in any
//! order. Connections are made in the background: no request makes one.

mod connection;
mod key;
mod link;
mod metrics;
pub(crate) mod tls;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_all;
use keys::{Deadline, KeyType};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::budget::Budget;
use crate::server::PORT;
use crate::wire::{ErrorCode, Items};
use link::{Link, State};

pub(crate) use connection::spread;
pub use key::RemoteKey;
pub use metrics::ClientMetrics;
pub use tls::ClientTls;

/// Servers asked in turn: the protocol's sites are three, and whoever has more wants a balancer.
pub const SERVERS_MAX: usize = 16;

/// Where a key service is.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Server {
    /// A Unix socket of this host: `unix:PATH`.
    Unix(PathBuf),
    /// TLS, both sides with certificates: `tls:HOST:PORT`, the port [`PORT`] if none is given.
    Tls {
        /// Dialled, and found in the server's certificate.
        host: String,
        /// TCP
        port: u16,
    },
}

/// A text that names no server.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is no key service: write unix:PATH or tls:HOST:PORT")]
pub struct NoServer(pub String);

impl FromStr for Server {
    type Err = NoServer;

    fn from_str(text: &str) -> Result<Self, NoServer> {
        let none = || NoServer(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(none()) } else { Ok(Self::Unix(path.into())) };
        }
        let place = text.strip_prefix("tls:").ok_or_else(none)?;
        let place = place.strip_prefix("//").unwrap_or(place);
        let (host, port) = match place.rsplit_once(':') {
            // An IPv6 address alone has colons, and no port.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, port.parse().map_err(|_| none())?)
            }
            _ => (place, PORT),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || port == 0 {
            return Err(none());
        }
        Ok(Self::Tls { host: host.to_owned(), port })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tls { host, port } if host.contains(':') => write!(f, "tls:[{host}]:{port}"),
            Self::Tls { host, port } => write!(f, "tls:{host}:{port}"),
        }
    }
}

/// Whom to ask, and how.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// In the order of preference; at most [`SERVERS_MAX`].
    pub servers: Vec<Server>,
    /// The own certificate and whom to believe; needed where a server is spoken to over TLS.
    pub tls: Option<ClientTls>,
    /// Requests under way on a connection; past it the next server is asked, or nobody. What gokeyless serves at once.
    pub in_flight_max: usize,
    /// For making a connection, handshake included.
    pub connect_timeout: Duration,
    /// Between two pings: servers close TCP connections on which nothing came for 30 s.
    pub ping_every: Duration,
    /// For the answer to a ping; past it the connection is given up. Pings are answered by who reads the connection, so
    /// what is slow there, is slow for everybody.
    pub ping_timeout: Duration,
    /// The pause after a connection could not be made; it doubles up to [`Self::backoff_max`].
    pub backoff: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            tls: None,
            in_flight_max: 1_024,
            connect_timeout: Duration::from_secs(3),
            ping_every: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(5),
            backoff: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
        }
    }
}

/// Why the client cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClientStartError {
    /// Nobody to ask.
    #[error("there is no key service to ask")]
    NoServer,
    /// More than [`SERVERS_MAX`].
    #[error("there are {0} key services; {SERVERS_MAX} are asked at most")]
    TooMany(usize),
    /// A server over TLS, and no certificate for it.
    #[error("{0} is spoken to over TLS, which takes a certificate of our own and roots for its")]
    NoCertificate(Server),
    /// A host that is no name in certificates.
    #[error("{0} has no host that a certificate could name")]
    BadName(Server),
    /// A root, or the own certificate.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// Why there is no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ClientError {
    /// The deadline passed. Whatever comes later is dropped.
    #[error("{0} did not answer in time")]
    Late(Server),
    /// As many requests as may are under way there.
    #[error("as many requests to {0} as may are under way")]
    Overloaded(Server),
    /// The connection was lost while the request was under way.
    #[error("the connection to {0} was lost")]
    Lost(Server),
    /// Nobody is connected. Operator: look at `bulla_keyless_client_up`, and at the service.
    #[error("no key service can be reached")]
    Unreachable,
    /// The server says so.
    #[error("{server} answered with an error: {code}", code = code.name())]
    Refused {
        /// Who.
        server: Server,
        /// What.
        code: ErrorCode,
    },
    /// A payload longer than a message can hold.
    #[error("the request is longer than a message can be")]
    TooLong,
}

impl ClientError {
    /// Whether another server may do what this one did not: one that is gone or has too much to do says nothing of the key.
    /// A failure of the key itself is the same everywhere.
    fn may_go_elsewhere(&self) -> bool {
        match self {
            Self::Overloaded(_) | Self::Lost(_) | Self::Unreachable => true,
            Self::Refused { code, .. } => *code == ErrorCode::Internal,
            Self::Late(_) | Self::TooLong => false,
        }
    }

    /// In metrics.
    fn name(&self) -> &'static str {
        match self {
            Self::Late(_) => "late",
            Self::Overloaded(_) => "overloaded",
            Self::Lost(_) => "lost",
            Self::Unreachable => "unreachable",
            Self::Refused { code, .. } => code.name(),
            Self::TooLong => "too-long",
        }
    }
}

/// Key services that are asked for signatures. Cheap to clone; with the last clone its connections end.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    links: Vec<Arc<Link>>,
    budget: Budget,
    metrics: ClientMetrics,
    tracker: TaskTracker,
    stopping: CancellationToken,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.links.iter().map(|link| link.server())).finish()
    }
}

impl Client {
    /// Begins to connect, and waits for nothing.
    ///
    /// # Errors
    /// [`ClientStartError`]
    pub fn start(options: &ClientOptions, metrics: ClientMetrics) -> Result<Self, ClientStartError> {
        match options.servers.len() {
            0 => return Err(ClientStartError::NoServer),
            1..=SERVERS_MAX => {}
            more => return Err(ClientStartError::TooMany(more)),
        }
        let tls = options.tls.as_ref().map(tls::config).transpose()?;
        let mut links = Vec::new();
        for server in &options.servers {
            links.push(Link::new(server, options, tls.clone(), &metrics)?);
        }
        let (tracker, stopping) = (TaskTracker::new(), CancellationToken::new());
        for link in &links {
            tracker.spawn(connection::keep(Arc::clone(link), stopping.clone()));
        }
        tracker.close();
        Ok(Self(Arc::new(Inner { links, budget: Budget::default(), metrics, tracker, stopping })))
    }

    /// Presents another certificate, and believes other roots, from the next connection on.
    ///
    /// # Errors
    /// Those of the library; all stays as it was then.
    pub fn change_tls(&self, tls: &ClientTls) -> Result<(), rustls::Error> {
        let config = tls::config(tls)?;
        self.0.links.iter().for_each(|link| link.change_tls(&config));
        Ok(())
    }

    /// A key held there, by its public half (DER SubjectPublicKeyInfo). `None` for a kind the protocol does not sign with.
    /// Nobody is asked whether it is held.
    #[must_use]
    pub fn key(&self, spki: &[u8]) -> Option<RemoteKey> {
        RemoteKey::new(self.clone(), spki)
    }

    /// Whether somebody is connected.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.0.links.iter().any(|link| link.state() == State::Up)
    }

    /// Asks the first server that is connected; another one only when that one is gone or has too much to do, and only for
    /// a tenth of all requests. Waits for a connection while none was tried and failed, never longer than the deadline.
    ///
    /// # Errors
    /// [`ClientError`], never later than shortly after `deadline`.
    ///
    /// # Cancellation
    /// Dropping the future gives its place to another request; what comes for it is dropped.
    pub async fn call(&self, items: &Items<'_>, deadline: Deadline) -> Result<Vec<u8>, ClientError> {
        let inner = &self.0;
        inner.budget.earn();
        self.connected(deadline).await?;
        let mut failed = None;
        for link in inner.links.iter().filter(|link| link.state() == State::Up) {
            if failed.is_some() {
                let may = inner.budget.spend();
                inner.metrics.retried(may);
                if !may {
                    break;
                }
            }
            match link.call(items, deadline).await {
                Err(error) if error.may_go_elsewhere() => failed = Some(error),
                done => return done,
            }
        }
        Err(failed.unwrap_or(ClientError::Unreachable))
    }

    /// Until somebody is connected, or nobody will be soon.
    async fn connected(&self, deadline: Deadline) -> Result<(), ClientError> {
        // The usual case, which costs nothing.
        if self.is_up() {
            return Ok(());
        }
        loop {
            // Seen before the look, so that no change is missed.
            let mut states: Vec<_> = self.0.links.iter().map(|link| link.watch()).collect();
            let now: Vec<State> = states.iter_mut().map(|state| *state.borrow_and_update()).collect();
            if now.contains(&State::Up) {
                return Ok(());
            }
            if !now.contains(&State::Connecting) {
                return Err(ClientError::Unreachable);
            }
            let changed = select_all(states.iter_mut().map(|state| Box::pin(state.changed())));
            if tokio::time::timeout_at(deadline.into(), changed).await.is_err() {
                return Err(ClientError::Unreachable);
            }
        }
    }

    /// Closes all connections; requests under way fail.
    pub async fn stop(self) {
        self.0.stopping.cancel();
        self.0.tracker.wait().await;
    }
}

/// Kinds of keys that the protocol signs with.
fn has_scheme(kind: KeyType) -> bool {
    keys::Scheme::of(kind).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_and_written() {
        for (text, wanted) in [
            ("unix:/run/keys.sock", Some("unix:/run/keys.sock")),
            ("tls:keys.example", Some("tls:keys.example:2407")),
            ("tls://keys.example:99", Some("tls:keys.example:99")),
            ("tls:[::1]:99", Some("tls:[::1]:99")),
            ("tls:::1", Some("tls:[::1]:2407")),
            ("tls:192.0.2.1:1", Some("tls:192.0.2.1:1")),
            ("keys.example", None),
            ("unix:", None),
            ("tls:", None),
            ("tls::99", None),
            ("tls:keys.example:0", None),
            ("tls:keys.example:x", None),
        ] {
            let read = text.parse::<Server>().ok().map(|server| server.to_string());
            assert_eq!(read.as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn only_what_says_nothing_of_the_key_is_asked_for_again() {
        let server = Server::Unix("x".into());
        for code in ErrorCode::ALL {
            let refused = ClientError::Refused { server: server.clone(), code };
            assert_eq!(refused.may_go_elsewhere(), code == ErrorCode::Internal, "{code:?}");
        }
        assert!(!ClientError::Late(server.clone()).may_go_elsewhere());
        assert!(ClientError::Lost(server).may_go_elsewhere());
    }
}
