//! Connections that this host's firewall redirects to the proxy: listeners, and original destinations.

use std::io;
use std::net::SocketAddr;

use http_relay::address::canonical;
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};

use crate::start_error::StartError;

/// Options of the listeners for redirected connections.
#[derive(Clone, Debug, Default)]
pub struct TransparentOptions {
    /// Addresses of the listeners; port 0 takes a free port. Empty: no listener.
    pub listen: Vec<SocketAddr>,
    /// Networks of clients that may use these listeners, in addition to the proxy's general restriction; empty: all. Clients cannot
    /// authenticate here.
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

/// Returns the original destination of a connection that was redirected to `at`. Fails if it was not redirected.
pub(crate) fn destination(stream: &TcpStream, at: SocketAddr) -> io::Result<SocketAddr> {
    let destination = canonical(original_destination(stream, at)?);
    match destination == canonical(at) {
        true => Err(io::Error::other("the connection was made to the proxy directly")),
        false => Ok(destination),
    }
}

/// Returns the original destination from the system's connection tracking.
#[cfg(target_os = "linux")]
fn original_destination(stream: &TcpStream, at: SocketAddr) -> io::Result<SocketAddr> {
    let socket = socket2::SockRef::from(stream);
    let original = match canonical(at) {
        SocketAddr::V4(_) => socket.original_dst_v4()?,
        SocketAddr::V6(_) => socket.original_dst_v6()?,
    };
    original.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
fn original_destination(_: &TcpStream, _: SocketAddr) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}
