//! Sockets of the fleet's servers: one a port for all of 127.0.0.0/8.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::counters::Counting;
use crate::kind::{Fault, Serve, Upgrade};
use crate::site::Site;
use crate::tls::{Tls, pause};
use crate::{fault, relic, starttls};

/// Connections the kernel keeps for us; it cuts this to its own limit (net.core.somaxconn).
const BACKLOG: i32 = 4_096;
/// The longest any connection is kept: more than any scanner waits.
const CONNECTION_LIFE: Duration = Duration::from_secs(120);
/// After accept failed, for want of descriptors in practice.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Loopback connects within microseconds; what has not after this was swallowed.
const SWALLOWED_AFTER: Duration = Duration::from_millis(250);
/// Connections tried to fill a black hole; Linux needs one or two.
const FILLERS_MAX: usize = 16;

/// The ports of a fleet.
pub(crate) struct Ports {
    /// TLS from the first byte, and whatever goes wrong after connecting.
    tls: (TcpListener, u16),
    upgrades: Vec<(Upgrade, TcpListener, u16)>,
    refusing: (Socket, u16),
    black_hole: BlackHole,
}

/// A socket that swallows every SYN: nobody accepts, and the queue is full of our own connections.
pub(crate) struct BlackHole {
    socket: Socket,
    port: u16,
    fillers: Vec<TcpStream>,
}

/// What keeps ports as they are without a task.
pub(crate) struct Held {
    _refusing: Socket,
    _black_hole: BlackHole,
}

impl Ports {
    pub(crate) async fn open(port: Option<u16>) -> io::Result<Self> {
        let mut upgrades = Vec::new();
        for upgrade in Upgrade::ALL {
            let (listener, port) = listener(0)?;
            upgrades.push((upgrade, listener, port));
        }
        // Bound, so that nobody else takes the port, and not listening: the kernel refuses.
        let refusing = bound(0)?;
        let refusing_port = port_of(&refusing)?;
        Ok(Self {
            tls: listener(port.unwrap_or(0))?,
            upgrades,
            refusing: (refusing, refusing_port),
            black_hole: BlackHole::open().await?,
        })
    }

    /// Where a server of that kind is to be found.
    pub(crate) fn of(&self, serve: Serve) -> u16 {
        match serve {
            Serve::Fault(Fault::Refused) => self.refusing.1,
            Serve::Fault(Fault::BlackHole) => self.black_hole.port,
            Serve::StartTls(upgrade) => {
                self.upgrades.iter().find(|(u, ..)| *u == upgrade).map_or(0, |(.., port)| *port)
            }
            _ => self.tls.1,
        }
    }

    /// Starts serving.
    pub(crate) fn serve(self, server: &Server, tasks: &TaskTracker) -> Held {
        tasks.spawn(server.clone().accept(self.tls.0, tasks.clone()));
        for (_, listener, _) in self.upgrades {
            tasks.spawn(server.clone().accept(listener, tasks.clone()));
        }
        Held { _refusing: self.refusing.0, _black_hole: self.black_hole }
    }
}

impl BlackHole {
    async fn open() -> io::Result<Self> {
        let socket = bound(0)?;
        socket.listen(0)?;
        let port = port_of(&socket)?;
        let mut hole = Self { socket, port, fillers: Vec::new() };
        for _ in 0..FILLERS_MAX {
            let connect = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
            match tokio::time::timeout(SWALLOWED_AFTER, connect).await {
                Ok(stream) => hole.fillers.push(stream?),
                Err(_) => return Ok(hole),
            }
        }
        Err(io::Error::other(format!(
            "{} connections did not fill a queue of none ({:?})",
            hole.fillers.len(),
            hole.socket
        )))
    }
}

fn bound(port: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    if port != 0 {
        // A chosen port may have connections of the last run in TIME_WAIT.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
    Ok(socket)
}

fn port_of(socket: &Socket) -> io::Result<u16> {
    let address = socket.local_addr()?.as_socket();
    address.map(|address| address.port()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

fn listener(port: u16) -> io::Result<(TcpListener, u16)> {
    let socket = bound(port)?;
    socket.listen(BACKLOG)?;
    let port = port_of(&socket)?;
    Ok((TcpListener::from_std(socket.into())?, port))
}

/// Servers by address; grows when a name moves.
pub(crate) type Sites = RwLock<HashMap<Ipv4Addr, Arc<Site>>>;

/// What every connection needs.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) sites: Arc<Sites>,
    pub(crate) tls: Arc<Tls>,
    pub(crate) counting: Arc<Counting>,
    pub(crate) stop: CancellationToken,
}

impl Server {
    async fn accept(self, listener: TcpListener, tasks: TaskTracker) {
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, peer)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Some(site) = self.site(&stream, peer) else { continue };
            self.counting.connections.add();
            let server = self.clone();
            tasks.spawn(async move {
                tokio::select! {
                    () = server.stop.cancelled() => {}
                    _ = tokio::time::timeout(CONNECTION_LIFE, server.connection(stream, &site)) => {}
                }
            });
        }
    }

    /// The server at the address that was called; `None` hangs up. The sockets are bound to every
    /// address because loopback's sixteen million cannot be named, so whoever is not on loopback
    /// is turned away here.
    fn site(&self, stream: &TcpStream, peer: SocketAddr) -> Option<Arc<Site>> {
        let IpAddr::V4(local) = stream.local_addr().ok()?.ip() else { return None };
        if !local.is_loopback() || !peer.ip().is_loopback() {
            return None;
        }
        self.sites.read().get(&local).cloned()
    }

    async fn connection(&self, mut stream: TcpStream, site: &Site) -> io::Result<()> {
        stream.set_nodelay(true)?;
        pause(site.dial).await;
        match site.serve() {
            Serve::Fault(fault) => {
                pause(site.handshake).await;
                fault::serve(&mut stream, fault).await
            }
            Serve::Relic(relic) => {
                pause(site.handshake).await;
                let Some(served) = site.served(None) else { return Ok(()) };
                relic::serve(&mut stream, relic, &served).await?;
                fault::close(&mut stream).await
            }
            Serve::StartTls(upgrade) => {
                starttls::hold(&mut stream, upgrade).await?;
                self.tls.serve(&mut stream, site).await
            }
            _ => self.tls.serve(&mut stream, site).await,
        }
    }
}
