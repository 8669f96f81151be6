//! The client of a connection, as the listener authenticated it.

use std::net::{IpAddr, Ipv4Addr};

use crate::client_certificate::PresentedChain;

/// The client of a connection: its address, certificate and channel binding.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Address of the client. It comes from the socket, or from the header of a proxy that the configuration trusts.
    pub address: IpAddr,
    /// Certificate chain that the client presented. Call [`ClientCertificates::verify`](crate::ClientCertificates::verify) to read
    /// its contents.
    pub client_certificate: Option<PresentedChain>,
    /// Exporter value of the connection for `tls-exporter` channel binding (RFC 9266), 32 bytes.
    pub channel_binding: Option<[u8; 32]>,
}

impl Peer {
    /// Returns a peer with an address only.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self { address, client_certificate: None, channel_binding: None }
    }

    /// Returns a peer on this machine.
    #[must_use]
    pub fn local() -> Self {
        Self::at(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }
}
