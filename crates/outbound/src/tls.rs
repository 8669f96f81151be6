//! TLS for Bulla's own clients, and liveness checks.
//!
//! Sessions are resumed. A resumed session does not contain the certificate, so nothing in this module makes a statement about a
//! server's current certificate.

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
use shared::Shared;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::Deadline;
use crate::dial::{self, DialError};

/// Maximum peers with cached sessions, a few kilobytes each; evicts the least recently used.
pub const SESSIONS_MAX: u64 = 4_096;
/// Maximum TLS 1.3 tickets cached per peer. Each is used once (RFC 8446 appendix C.4); servers send two to four.
const TICKETS_PER_PEER_MAX: usize = 4;
/// Time to wait after the handshake for TLS 1.3 tickets, which arrive with the first data. Without them the next check cannot
/// resume. Counts towards the caller's limit.
const TICKET_WAIT_MAX: Duration = Duration::from_millis(50);

/// Returns the certificates that this system trusts, DER; empty on a machine without any.
#[must_use]
pub fn system_roots() -> Vec<Vec<u8>> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some system roots could not be read");
    }
    found.certs.into_iter().map(|root| root.to_vec()).collect()
}

/// Reason why a TLS connection could not be established.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The TCP connection failed.
    #[error("{address}: {error}")]
    Dial {
        /// The address dialed.
        address: SocketAddr,
        /// Reason why the TCP connection failed.
        error: DialError,
    },
    /// The name is invalid in a ClientHello (RFC 6066 section 3).
    #[error("{name:?} is not a host name or address")]
    BadName {
        /// The name as given by the caller.
        name: String,
        /// Reason why the name is invalid.
        #[source]
        source: InvalidDnsNameError,
    },
    /// The handshake failed; the source contains the peer's alert or the local error.
    #[error("TLS handshake with {address} failed")]
    Handshake {
        /// The address of the peer.
        address: SocketAddr,
        /// The error of the TLS library or the socket.
        #[source]
        source: io::Error,
    },
    /// The handshake did not finish in time.
    #[error("{address} did not finish the TLS handshake in time")]
    TimedOut {
        /// The address of the peer.
        address: SocketAddr,
    },
    /// There are no trusted roots. Operator: configure them, or install the system's (`ca-certificates`).
    #[error("no trust anchors; install ca-certificates or name a file of root certificates")]
    NoRoots,
    /// The TLS library rejects its default configuration.
    #[error("TLS cannot be set up")]
    Setup(#[source] Error),
}

/// Whether a handshake was full or resumed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Handshake {
    /// A full handshake with certificates.
    Full,
    /// A resumed session.
    Resumed,
}

/// Result of a liveness check: the endpoint speaks TLS. Its certificate is not checked, and a resumed handshake does not contain
/// it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Liveness {
    /// Whether the handshake was full or resumed.
    pub handshake: Handshake,
    /// Time from the first SYN to the end of the handshake.
    pub elapsed: Duration,
}

/// Numbers of successful handshakes, by type.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Handshakes {
    /// Number of full handshakes.
    pub full: u64,
    /// Number of resumed handshakes.
    pub resumed: u64,
}

#[derive(Default)]
struct Counters {
    full: AtomicU64,
    resumed: AtomicU64,
}

struct ConnectorState {
    verifying: ClientConfig,
    /// Configuration for liveness checks, without certificate verification. Used only in this module; its sessions are separate.
    liveness_config: ClientConfig,
    verified_sessions: Sessions,
    liveness_sessions: Sessions,
    counters: Counters,
}

/// A connector that opens TLS connections and caches sessions. Create it once; clones share everything.
#[derive(Clone)]
pub struct Connector(Shared<ConnectorState>);

impl Connector {
    /// Creates a connector that trusts the system's roots.
    ///
    /// # Errors
    /// [`TlsError::NoRoots`] on a system without trusted roots.
    pub fn system() -> Result<Self, TlsError> {
        Self::with_roots(system_roots())
    }

    /// Creates a connector that trusts `roots`, DER. Roots that cannot be parsed are skipped, because systems contain malformed
    /// ones.
    ///
    /// # Errors
    /// [`TlsError::NoRoots`] when none can be parsed.
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
        let unchecked = Arc::new(UncheckedVerifier(provider.clone()));
        let liveness_config =
            builder()?.dangerous().with_custom_certificate_verifier(unchecked).with_no_client_auth();
        Ok(Self(Shared::new(ConnectorState {
            verifying,
            liveness_config,
            verified_sessions: Sessions::new(),
            liveness_sessions: Sessions::new(),
            counters: Counters::default(),
        })))
    }

    /// Connects to `address` and verifies that its certificate is valid for `name`, a host name or address.
    ///
    /// # Errors
    /// The failed phase and its error; after the deadline, [`TlsError::TimedOut`] or a dial that timed out.
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
        self.connect_with(&self.0.verifying, sessions, address, name, deadline).await
    }

    /// Checks whether `address` speaks TLS for `name`; resumes a session of an earlier check if possible. **Verifies no
    /// certificate**: the result does not mean that the server is trusted or unchanged.
    ///
    /// # Errors
    /// See [`Connector::connect`].
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
        let sessions = self.0.liveness_sessions.of(address, name);
        let waiting = sessions.clone();
        let mut stream =
            self.connect_with(&self.0.liveness_config, sessions, address, name, deadline).await?;
        let elapsed = began.elapsed();
        let handshake = kind(&stream);
        if !waiting.has_any() {
            let _ = deadline.child(TICKET_WAIT_MAX).bound(await_ticket(&mut stream)).await;
        }
        // Closes cleanly if possible; the result is already known.
        let _ = deadline.child(TICKET_WAIT_MAX).bound(stream.shutdown()).await;
        Ok(Liveness { handshake, elapsed })
    }

    /// Returns the numbers of successful full and resumed handshakes.
    #[must_use]
    pub fn handshakes(&self) -> Handshakes {
        Handshakes {
            full: self.0.counters.full.load(Ordering::Relaxed),
            resumed: self.0.counters.resumed.load(Ordering::Relaxed),
        }
    }

    async fn connect_with(
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
        // The configuration is cheap to clone; only its session store differs by peer.
        let mut config = config.clone();
        config.resumption = rustls::client::Resumption::store(sessions);
        let connecting = TlsConnector::from(Arc::new(config)).connect(server_name, stream);
        let stream = deadline
            .bound(connecting)
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

/// Reads until the peer sends data; tickets arrive before the data or with it.
async fn await_ticket<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut TlsStream<S>) {
    let _ = tokio::io::AsyncReadExt::read_u8(stream).await;
}

/// Cached sessions by peer. The library keys sessions by name only, but a name may have many addresses, and an address several
/// ports, with separate tickets.
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

/// Sessions of one peer, locked for a push or a pop.
#[derive(Default)]
struct PeerSessions(Mutex<SessionData>);

#[derive(Default)]
struct SessionData {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl PeerSessions {
    fn has_any(&self) -> bool {
        let session_data = self.0.lock();
        session_data.tls12.is_some() || !session_data.tickets.is_empty()
    }
}

impl fmt::Debug for PeerSessions {
    /// Omits the sessions: they are secret.
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
        let mut session_data = self.0.lock();
        if session_data.tickets.len() >= TICKETS_PER_PEER_MAX {
            session_data.tickets.pop_front();
        }
        session_data.tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.lock().tickets.pop_back()
    }
}

/// A verifier that accepts any certificate. Only for [`Connector::liveness`], which does not judge the certificate.
#[derive(Debug)]
struct UncheckedVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for UncheckedVerifier {
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
