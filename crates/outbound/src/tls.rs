//! TLS for our own clients, and the question "is it alive?".
//!
//! Sessions are resumed here, which is why nothing in this module says what certificate a server has: a
//! resumed session carries none, only the memory of one.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flight::BoundedMap;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, HandshakeKind, NamedGroup, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Deadline;
use crate::dial::{self, DialError};

/// Peers whose sessions are remembered, a few kilobytes each. The least recently used go first.
pub const SESSIONS_MAX: u64 = 4_096;
/// TLS 1.3 tickets kept a peer: each serves once (RFC 8446 appendix C.4), servers send two to four.
const TICKETS_PER_PEER_MAX: usize = 4;
/// How long after the handshake to listen for TLS 1.3's tickets, which come with the first data: without
/// them the next look could not resume. Part of the caller's limit.
const TICKET_PATIENCE: Duration = Duration::from_millis(50);

/// The certificates this system trusts, in DER; empty on a machine without any.
#[must_use]
pub fn system_roots() -> Vec<Vec<u8>> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some system roots could not be read");
    }
    found.certs.into_iter().map(|root| root.to_vec()).collect()
}

/// Why there is no TLS connection.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No connection to speak TLS over.
    #[error("{address}: {error}")]
    Dial {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: DialError,
    },
    /// The name cannot stand in a ClientHello (RFC 6066 section 3).
    #[error("{name:?} is no host name or address")]
    BadName {
        /// The text as the caller wrote it.
        name: String,
        /// The error.
        #[source]
        source: InvalidDnsNameError,
    },
    /// The handshake failed: the peer's or our own verdict is the source.
    #[error("TLS handshake with {address} failed")]
    Handshake {
        /// The address.
        address: SocketAddr,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// No end of the handshake in time.
    #[error("{address} did not finish the TLS handshake in time")]
    TimedOut {
        /// The address.
        address: SocketAddr,
    },
    /// Operator: give trusted roots, or install the system's (`ca-certificates`).
    #[error("no certificate authority to trust; install ca-certificates or name a file of roots")]
    NoRoots,
    /// The TLS library refuses its own defaults.
    #[error("TLS cannot be set up")]
    Setup(#[source] Error),
}

/// Whether a handshake was full or resumed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Handshake {
    /// With certificates and their proof.
    Full,
    /// With a ticket or session of before.
    Resumed,
}

/// An endpoint speaks TLS. No claim about its certificate: none is checked, and a resumed handshake
/// does not even carry one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Liveness {
    /// How it was found out.
    pub handshake: Handshake,
    /// From the first SYN to the end of the handshake.
    pub elapsed: Duration,
}

/// Handshakes made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Handshakes {
    /// Full ones.
    pub full: u64,
    /// Resumed ones.
    pub resumed: u64,
}

#[derive(Default)]
struct Counters {
    full: AtomicU64,
    resumed: AtomicU64,
}

struct ConnectorState {
    verifying: ClientConfig,
    /// Checks nothing. Never leaves this module, and its sessions are kept apart.
    alive: ClientConfig,
    verified_sessions: Sessions,
    alive_sessions: Sessions,
    counters: Counters,
}

/// Makes TLS connections and remembers sessions. Build it once; clones share everything.
#[derive(Clone)]
pub struct Connector(Arc<ConnectorState>);

impl Connector {
    /// Trusts the system's roots.
    ///
    /// # Errors
    /// [`TlsError::NoRoots`] on a system without any.
    pub fn system() -> Result<Self, TlsError> {
        Self::with_roots(system_roots())
    }

    /// Trusts `roots`, in DER. Roots that cannot be read are left out, as systems carry odd ones.
    ///
    /// # Errors
    /// [`TlsError::NoRoots`] when none can be read.
    pub fn with_roots(roots: impl IntoIterator<Item = Vec<u8>>) -> Result<Self, TlsError> {
        let mut trusted = RootCertStore::empty();
        trusted.add_parsable_certificates(roots.into_iter().map(CertificateDer::from));
        if trusted.is_empty() {
            return Err(TlsError::NoRoots);
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = || {
            ClientConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .map_err(TlsError::Setup)
        };
        let verifying = builder()?.with_root_certificates(trusted).with_no_client_auth();
        let unchecked = Arc::new(Unchecked(provider.clone()));
        let alive = builder()?.dangerous().with_custom_certificate_verifier(unchecked).with_no_client_auth();
        Ok(Self(Arc::new(ConnectorState {
            verifying,
            alive,
            verified_sessions: Sessions::new(),
            alive_sessions: Sessions::new(),
            counters: Counters::default(),
        })))
    }

    /// Connects to `address` and checks that it is `name`, a host name or address.
    ///
    /// # Errors
    /// Which phase failed and why; at the deadline, [`TlsError::TimedOut`] or a dial that timed out.
    ///
    /// # Cancellation
    /// Dropping the future closes the socket.
    #[crate::boxed]
    pub async fn connect(
        &self,
        address: SocketAddr,
        name: &str,
        deadline: Deadline,
    ) -> Result<TlsStream<TcpStream>, TlsError> {
        let sessions = self.0.verified_sessions.of(address, name);
        self.shake(&self.0.verifying, sessions, address, name, deadline).await
    }

    /// Whether `address` speaks TLS for `name`, resuming a session of an earlier such look when it can.
    /// **Checks no certificate**: the answer is "alive", never "trusted" and never "the same as before".
    ///
    /// # Errors
    /// As [`Connector::connect`].
    ///
    /// # Cancellation
    /// Dropping the future closes the socket.
    #[crate::boxed]
    pub async fn liveness(
        &self,
        address: SocketAddr,
        name: &str,
        deadline: Deadline,
    ) -> Result<Liveness, TlsError> {
        let began = tokio::time::Instant::now();
        let sessions = self.0.alive_sessions.of(address, name);
        let waiting = sessions.clone();
        let mut stream = self.shake(&self.0.alive, sessions, address, name, deadline).await?;
        let elapsed = began.elapsed();
        let handshake = kind(&stream);
        if !waiting.has_any() {
            let _ = deadline.child(TICKET_PATIENCE).bound(await_ticket(&mut stream)).await;
        }
        // Good manners only: what was asked is known.
        let _ = deadline.child(TICKET_PATIENCE).bound(stream.shutdown()).await;
        Ok(Liveness { handshake, elapsed })
    }

    /// Handshakes made so far, failed ones not counted.
    #[must_use]
    pub fn handshakes(&self) -> Handshakes {
        Handshakes {
            full: self.0.counters.full.load(Ordering::Relaxed),
            resumed: self.0.counters.resumed.load(Ordering::Relaxed),
        }
    }

    async fn shake(
        &self,
        config: &ClientConfig,
        sessions: Arc<PeerSessions>,
        address: SocketAddr,
        name: &str,
        deadline: Deadline,
    ) -> Result<TlsStream<TcpStream>, TlsError> {
        let server_name = ServerName::try_from(name.to_owned())
            .map_err(|source| TlsError::BadName { name: name.to_owned(), source })?;
        let stream = dial::connect(address, deadline.remaining())
            .await
            .map_err(|error| TlsError::Dial { address, error })?;
        // Sharing: a configuration is a handful of pointers; only its session store differs by peer.
        let mut config = config.clone();
        config.resumption = rustls::client::Resumption::store(sessions);
        let shaking = TlsConnector::from(Arc::new(config)).connect(server_name, stream);
        let stream = deadline
            .bound(shaking)
            .await
            .map_err(|_| TlsError::TimedOut { address })?
            .map_err(|source| TlsError::Handshake { address, source })?;
        let counter = match kind(&stream) {
            Handshake::Full => &self.0.counters.full,
            Handshake::Resumed => &self.0.counters.resumed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(stream)
    }
}

fn kind<S>(stream: &TlsStream<S>) -> Handshake {
    match stream.get_ref().1.handshake_kind() {
        Some(HandshakeKind::Resumed) => Handshake::Resumed,
        _ => Handshake::Full,
    }
}

/// Reads until the peer says something; its tickets come before that or with it.
async fn await_ticket<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut TlsStream<S>) {
    let _ = tokio::io::AsyncReadExt::read_u8(stream).await;
}

/// What is remembered of each peer. The library keys sessions by name alone; behind one name may stand
/// many addresses, and behind one address several ports, none of which know each other's tickets.
struct Sessions(BoundedMap<(SocketAddr, Box<str>), Arc<PeerSessions>>);

impl Sessions {
    fn new() -> Self {
        Self(BoundedMap::new(SESSIONS_MAX))
    }

    fn of(&self, address: SocketAddr, name: &str) -> Arc<PeerSessions> {
        let key = (address, name.to_ascii_lowercase().into_boxed_str());
        self.0.get_with(key, Arc::default)
    }
}

/// One peer's sessions. The lock is held for a push or a pop.
#[derive(Default)]
struct PeerSessions(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl PeerSessions {
    fn has_any(&self) -> bool {
        let remembered = self.0.lock();
        remembered.tls12.is_some() || !remembered.tickets.is_empty()
    }
}

impl fmt::Debug for PeerSessions {
    /// Says nothing of the sessions: they are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerSessions")
    }
}

impl ClientSessionStore for PeerSessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.lock().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.lock().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.lock().tls12 = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.lock().tls12.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.lock().tls12 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut remembered = self.0.lock();
        if remembered.tickets.len() >= TICKETS_PER_PEER_MAX {
            remembered.tickets.pop_front();
        }
        remembered.tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.lock().tickets.pop_back()
    }
}

/// Accepts any certificate. For [`Connector::liveness`] only, which claims nothing about it.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
