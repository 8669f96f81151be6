//! The client of a connection, as the listener authenticated it.

use std::net::{IpAddr, Ipv4Addr};

use crate::client_certificate::PresentedChain;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address, as the socket says; a proxy's header is believed only where the configuration names the proxy.
    pub address: IpAddr,
    /// The certificates it presented. What they say is for [`ClientCertificates::verify`](crate::ClientCertificates::verify) to give out.
    pub client_certificate: Option<PresentedChain>,
    /// The connection's exporter value for `tls-exporter` channel binding (RFC 9266), 32 bytes.
    pub channel_binding: Option<[u8; 32]>,
}

impl Peer {
    /// A peer of which only the address is known.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self { address, client_certificate: None, channel_binding: None }
    }

    /// This machine.
    #[must_use]
    pub fn local() -> Self {
        Self::at(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }
}
