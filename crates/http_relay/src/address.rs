//! Socket addresses in one form, so that they can be compared.

use std::net::SocketAddr;

/// Returns `address` with an IPv4-mapped address as IPv4, and an IPv6 address without its flow label and scope.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
