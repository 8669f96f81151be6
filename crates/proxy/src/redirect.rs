//! Connections that this host's firewall redirects here: where they come in, and where they went before.

use std::io;
use std::net::SocketAddr;

use http_relay::address::canonical;
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};

use crate::start_error::StartError;

/// Where redirected connections come in, and whose they are.
#[derive(Clone, Debug, Default)]
pub struct TransparentOptions {
    /// Where; port 0 takes a free one. Nowhere when empty.
    pub listen: Vec<SocketAddr>,
    /// Whose, of those that may use the proxy at all: all of these when empty. Nobody here can say who they are.
    pub clients: Vec<IpNet>,
}

/// Opens the listeners of redirected connections.
pub(crate) fn listen(options: &TransparentOptions) -> Result<Vec<(TcpListener, SocketAddr)>, StartError> {
    let mut listeners = Vec::new();
    for address in options.listen.iter().copied() {
        let failed = |source| StartError::Bind { address, source };
        let listener = inbound::listen(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        listeners.push((listener, bound));
    }
    Ok(listeners)
}

/// The original destination of a connection that was redirected to `at`. Fails if it was not redirected.
pub(crate) fn destination(stream: &TcpStream, at: SocketAddr) -> io::Result<SocketAddr> {
    let destination = canonical(original_destination(stream, at)?);
    match destination == canonical(at) {
        true => Err(io::Error::other("it was made to there")),
        false => Ok(destination),
    }
}

/// The original destination by the system's connection tracking.
#[cfg(target_os = "linux")]
fn original_destination(stream: &TcpStream, at: SocketAddr) -> io::Result<SocketAddr> {
    let socket = socket2::SockRef::from(stream);
    let told = match canonical(at) {
        SocketAddr::V4(_) => socket.original_dst_v4()?,
        SocketAddr::V6(_) => socket.original_dst_v6()?,
    };
    told.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
fn original_destination(_: &TcpStream, _: SocketAddr) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}
