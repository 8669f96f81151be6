//! The peer address of a connection.

use std::net::IpAddr;

use http::request::Parts;

pub use authority::Peer;

/// Returns the peer's address; without a listener (in tests) the address of this machine.
pub(crate) fn address(parts: &Parts) -> IpAddr {
    parts.extensions.get::<Peer>().map_or_else(|| Peer::local().address, |peer| peer.address)
}
