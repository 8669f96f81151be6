//! Relays connections from the namespace to a remote proxy, over TLS if its URL is https.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cli::exit::{Exit, Outcome, Problem, chain};
use inbound::{Acceptor, ServiceTasks, Slots, WhenFull};
use outbound::Deadline;
use outbound::tls::Connector;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::arguments::RemoteProxy;

/// Maximum concurrent connections: a proxy's limit per address. Further connections wait.
const CONNECTIONS_MAX: usize = 1_024;
/// The timeout for connecting to the proxy, TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The remote proxy of a relay: its address and, for an https proxy, its TLS settings.
#[derive(Clone)]
pub(super) struct Target {
    /// Address of the proxy, HOST:PORT.
    address: Arc<str>,
    tls: Option<Connector>,
}

impl Target {
    /// Creates the target. `roots` (DER) verify the certificate of an https proxy.
    pub(super) fn new(proxy: &RemoteProxy, roots: Vec<Vec<u8>>) -> Outcome<Self> {
        let connector = || {
            Connector::with_roots(roots).map_err(|error| {
                Problem::new(Exit::Machine, chain(&error))
                    .hint("name the trust anchors of the proxy's certificate: --proxy-ca FILE")
            })
        };
        let tls = proxy.is_tls.then(connector).transpose()?;
        Ok(Self { address: proxy.address.as_str().into(), tls })
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        let Some(tls) = &self.tls else {
            let stream = TcpStream::connect(&*self.address).await.map_err(|error| error.to_string())?;
            let _ = stream.set_nodelay(true);
            return Ok(Box::new(stream));
        };
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut last = "its name has no IP address".to_owned();
        for address in tokio::net::lookup_host(&*self.address).await.map_err(|error| error.to_string())? {
            match tls.connect(address, host, Deadline::within(CONNECT_TIMEOUT)).await {
                Ok(stream) => return Ok(Box::new(stream)),
                Err(error) => last = chain(&error),
            }
        }
        Err(last)
    }
}

/// A connection, either plain or over TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(super) struct Relay(ServiceTasks);

impl Relay {
    pub(super) async fn stop(self) {
        // The command and its connections have ended.
        let _drained = self.0.close(Duration::ZERO).await;
    }
}

/// Relays connections that a bound socket accepts. Must be called in a runtime.
pub(super) fn start(socket: OwnedFd, to: Target) -> Outcome<Relay> {
    let listen = inbound::reserve_socket(socket).and_then(inbound::listen);
    listen.map(|listener| serve(listener, to)).map_err(|error| failed(&error))
}

/// Listens on a free loopback port, and relays the connections that arrive there.
pub(super) async fn start_local(to: Target) -> Outcome<(SocketAddr, Relay)> {
    let listener =
        TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.map_err(|error| failed(&error))?;
    let address = listener.local_addr().map_err(|error| failed(&error))?;
    Ok((address, serve(listener, to)))
}

fn serve(listener: TcpListener, to: Target) -> Relay {
    let tasks = ServiceTasks::default();
    let handler = move |stream: TcpStream, _: SocketAddr| {
        let to = to.clone();
        async move {
            let _live = telemetry::tasks::guard("run-relay");
            pass_on(stream, &to).await;
        }
    };
    Acceptor::new(&tasks, Slots::new(CONNECTIONS_MAX), WhenFull::Wait).start(listener, Arc::new(handler));
    Relay(tasks)
}

async fn pass_on(mut from: TcpStream, to: &Target) {
    let mut proxy = match to.connect().await {
        Ok(proxy) => proxy,
        Err(error) => {
            eprintln!("bulla: cannot connect to the proxy at {}: {error}", to.address);
            return;
        }
    };
    let _ = from.set_nodelay(true);
    if let Err(error) = copy_bidirectional(&mut from, &mut proxy).await {
        tracing::debug!(%error, "a connection to the proxy ended");
    }
}

fn failed(error: &std::io::Error) -> Problem {
    Problem::new(
        Exit::Machine,
        format_args!("cannot open the listener for the command's connections to the proxy: {error}"),
    )
}
