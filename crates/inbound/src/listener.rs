//! Sockets that accept connections: TCP and Unix.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpListener, TcpStream};

use crate::proxy_protocol;

/// A socket that accepts connections.
pub trait Listener: Send + Sync + 'static {
    /// Stream of an accepted connection.
    type Stream: Send + 'static;
    /// Address of a client.
    type Address: Send + 'static;

    /// Waits for the next connection. Cancelling the future loses no connection.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Self::Address)>> + Send;

    /// Returns the IP address of a client, if it has one.
    fn ip(address: &Self::Address) -> Option<IpAddr>;

    /// Returns the address of the client behind the trusted proxy at `peer`, as the proxy sends it before the client's first byte.
    fn client_behind(
        _stream: &mut Self::Stream,
        peer: Self::Address,
    ) -> impl Future<Output = io::Result<Self::Address>> + Send {
        std::future::ready(Ok(peer))
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    type Address = SocketAddr;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = Self::accept(self).await?;
        // Responses are written whole, so waiting for more data only delays them. The call fails only if the connection is already
        // closed.
        let _ = stream.set_nodelay(true);
        Ok((stream, address))
    }

    fn ip(address: &SocketAddr) -> Option<IpAddr> {
        Some(address.ip())
    }

    async fn client_behind(stream: &mut TcpStream, peer: SocketAddr) -> io::Result<SocketAddr> {
        proxy_protocol::client_address(stream, peer).await
    }
}

#[cfg(unix)]
impl Listener for tokio::net::UnixListener {
    type Stream = tokio::net::UnixStream;
    type Address = tokio::net::unix::SocketAddr;

    async fn accept(&self) -> io::Result<(Self::Stream, Self::Address)> {
        Self::accept(self).await
    }

    fn ip(_: &Self::Address) -> Option<IpAddr> {
        None
    }
}
