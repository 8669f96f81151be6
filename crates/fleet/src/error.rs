//! Why there is no fleet.

use std::io;
use std::net::SocketAddr;

use crate::key_kind::KeyKind;

/// Why there is no fleet.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The system would not give a socket.
    #[error("the fleet cannot listen")]
    Io(#[from] io::Error),
    /// rustls would not take a configuration.
    #[error("the fleet cannot serve TLS")]
    Tls(#[from] rustls::Error),
    /// A key could not be made.
    #[error("no key could be made")]
    Key(#[allow(private_interfaces, reason = "told to people only, by Debug")] KeyKind),
    /// A signature could not be made.
    #[error("a certificate could not be signed")]
    Sign,
    /// A full queue takes connections all the same, so that nothing can be a black hole.
    #[error(
        "{address} took {connections} connections into a queue for one and still takes more: no black hole \
         can be made of it; run the fleet on Linux, or with a dead fraction of 0"
    )]
    NoBlackHole {
        /// Where the queue is.
        address: SocketAddr,
        /// How many it took.
        connections: usize,
    },
    /// More endpoints than 127.0.0.0/8 has addresses.
    #[error("127.0.0.0/8 has no room for so many endpoints")]
    TooLarge,
}
