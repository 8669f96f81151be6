//! Normalises socket addresses, so that they can be compared.

use std::net::SocketAddr;

/// Normalises a socket address: IPv4-mapped addresses become IPv4, and IPv6 addresses lose flow label and scope.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
