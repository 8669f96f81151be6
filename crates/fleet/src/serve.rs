//! The TLS servers: one socket per port for all of 127.0.0.0/8; address and SNI select the host.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use inbound::{Acceptor, ConnectionHandler, ServiceTasks, Slot, Slots, WhenFull};
use parking_lot::Mutex;
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{HandshakeKind, RootCertStore, version};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::FleetError;
use crate::estate::{Estate, Host};
use crate::fault;
use crate::kind::{EndpointBehavior, Versions};
use crate::starttls;
use crate::truth::Tally;

/// Maximum concurrent connections per port; further ones wait in the socket's queue.
const CONNECTIONS_MAX: usize = 8_192;
/// Maximum connections waiting to be accepted; Linux limits it to net.core.somaxconn.
const BACKLOG: u32 = 4_096;
/// Timeout of a handshake, and of the connection after it.
const TIMEOUT: Duration = Duration::from_secs(30);

tokio::task_local! {
    /// The connection for which rustls currently chooses a certificate.
    static CONNECTION: Connection;
}

/// Data of a connection that the choice of the certificate depends on.
struct Connection {
    /// Local address of the connection.
    address: Ipv4Addr,
    /// Whether a certificate has been chosen: rustls calls the resolver again after a second ClientHello.
    chosen: Cell<bool>,
}

/// State shared by all servers.
pub(crate) struct Servers {
    estate: Arc<Estate>,
    tally: Tally,
    configs: Mutex<HashMap<EndpointBehavior, Arc<ServerConfig>>>,
    client_roots: Arc<RootCertStore>,
}

impl Servers {
    pub(crate) fn new(estate: Arc<Estate>, tally: Tally, client_roots: RootCertStore) -> Self {
        Self { estate, tally, configs: Mutex::default(), client_roots: Arc::new(client_roots) }
    }

    /// Accepts connections on `listener`; its tasks belong to `tasks`.
    pub(crate) fn accept(self: Arc<Self>, listener: TcpListener, tasks: &ServiceTasks) {
        Acceptor::new(tasks, Slots::new(CONNECTIONS_MAX), WhenFull::Wait).start(listener, self);
    }

    async fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let IpAddr::V4(address) = stream.local_addr()?.ip() else { return Ok(()) };
        let Some(host) = self.estate.at(address).cloned() else { return Ok(()) };
        self.tally.0.connections.fetch_add(1, Relaxed);
        pause(host.delays.dial).await;
        match host.kind.serve {
            EndpointBehavior::Fault(fault) => fault::simulate_fault(stream, fault).await,
            EndpointBehavior::Relic(relic) => {
                pause(host.delays.handshake).await;
                let served = self.estate.served(None, address).ok_or(io::ErrorKind::NotFound)?;
                let chain: Vec<_> = served.chain().cloned().collect();
                self.tally.0.certificates_sent.fetch_add(1, Relaxed);
                fault::answer_as_legacy_server(stream, relic, &chain).await
            }
            EndpointBehavior::StartTls(upgrade) => {
                starttls::negotiate_starttls(&mut stream, upgrade.scheme()).await?;
                self.speak_tls(stream, &host, address).await
            }
            _ => self.speak_tls(stream, &host, address).await,
        }
    }

    async fn speak_tls(&self, stream: TcpStream, host: &Host, address: Ipv4Addr) -> io::Result<()> {
        pause(host.delays.handshake).await;
        let config = self.config(host.kind.serve).map_err(io::Error::other)?;
        let connection = Connection { address, chosen: Cell::new(false) };
        let accept = CONNECTION.scope(connection, TlsAcceptor::from(config).accept(stream));
        let Ok(Ok(mut tls)) = tokio::time::timeout(TIMEOUT, accept).await else {
            self.tally.0.handshakes_left.fetch_add(1, Relaxed);
            return Ok(());
        };
        let counts = &self.tally.0;
        match tls.get_ref().1.handshake_kind() {
            Some(HandshakeKind::Resumed) => {
                // rustls chooses a certificate before it checks the session ticket.
                counts.certificates_sent.fetch_sub(1, Relaxed);
                &counts.handshakes_resumed
            }
            Some(HandshakeKind::FullWithHelloRetryRequest) => {
                counts.hello_retries.fetch_add(1, Relaxed);
                &counts.handshakes_full
            }
            _ => &counts.handshakes_full,
        }
        .fetch_add(1, Relaxed);
        let mut ignored = [0; 1_024];
        let leaving = async {
            while tls.read(&mut ignored).await? > 0 {}
            io::Result::Ok(())
        };
        tokio::time::timeout(TIMEOUT, leaving).await.unwrap_or(Ok(()))
    }

    /// Returns the TLS configuration, shared by all hosts with this behavior.
    fn config(&self, serve: EndpointBehavior) -> Result<Arc<ServerConfig>, FleetError> {
        let mut configs = self.configs.lock();
        if let Some(known) = configs.get(&serve) {
            return Ok(known.clone());
        }
        let config = Arc::new(self.configure(serve)?);
        configs.insert(serve, config.clone());
        Ok(config)
    }

    fn configure(&self, serve: EndpointBehavior) -> Result<ServerConfig, FleetError> {
        let versions = match serve {
            EndpointBehavior::Tls(versions) | EndpointBehavior::ClientCertificate(versions) => versions,
            _ => Versions::Both,
        };
        let versions: &[_] = match versions {
            Versions::Both => &[&version::TLS13, &version::TLS12],
            Versions::Only12 => &[&version::TLS12],
            Versions::Only13 => &[&version::TLS13],
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions)?;
        let builder = match serve {
            EndpointBehavior::ClientCertificate(_) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(self.client_roots.clone(), provider)
                        .build()
                        .map_err(|error| FleetError::Tls(rustls::Error::General(error.to_string())))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let chooser = Chooser { estate: self.estate.clone(), tally: self.tally.clone() };
        let mut config = builder.with_cert_resolver(Arc::new(chooser));
        // The servers always accept session tickets: a scanner that resumes sessions would get stale certificates.
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new()?;
        if serve == EndpointBehavior::H2 {
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        Ok(config)
    }
}

impl ConnectionHandler for Servers {
    async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, _: &mut Slot) {
        if peer.ip().is_loopback() {
            // A failed connection is the client's error.
            drop(self.answer(stream).await);
        }
    }
}

/// A certificate resolver that chooses by SNI and by the local address.
#[derive(Clone)]
struct Chooser {
    estate: Arc<Estate>,
    tally: Tally,
}

impl std::fmt::Debug for Chooser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Chooser")
    }
}

impl ResolvesServerCert for Chooser {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        CONNECTION
            .try_with(|connection| {
                let served = self.estate.served(hello.server_name(), connection.address)?;
                if !connection.chosen.replace(true) {
                    self.tally.0.certificates_sent.fetch_add(1, Relaxed);
                }
                Some(Arc::new(served.certified()))
            })
            .ok()?
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Listens on every address of 127.0.0.0/8, on `port` or on a free one.
pub(crate) fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    // A socket cannot bind to a network. It binds to all addresses, and connections from other networks are rejected.
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
    socket.listen(BACKLOG as i32)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}
