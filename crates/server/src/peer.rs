//! The other end of a connection.

use std::net::IpAddr;

use http::request::Parts;

pub use authority::Peer;

/// The other end's address; without a listener (in tests) this machine's.
pub(crate) fn address(parts: &Parts) -> IpAddr {
    parts.extensions.get::<Peer>().map_or_else(|| Peer::local().address, |peer| peer.address)
}
