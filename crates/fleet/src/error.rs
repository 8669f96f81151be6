//! Errors of starting a fleet.

use std::io;
use std::net::SocketAddr;

use crate::key_kind::KeyKind;

/// Reason why the fleet cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The system returned an error for a socket.
    #[error("the fleet cannot open a socket")]
    Io(#[from] io::Error),
    /// rustls rejected a configuration.
    #[error("the TLS configuration of the fleet is invalid")]
    Tls(#[from] rustls::Error),
    /// A key could not be created.
    #[error("cannot generate a key")]
    Key(#[allow(private_interfaces, reason = "only printed, by Debug")] KeyKind),
    /// A signature could not be created.
    #[error("cannot sign a certificate")]
    Sign,
    /// A listener with a full queue accepts connections anyway, so black holes cannot be simulated.
    #[error(
        "{address} accepted {connections} connections with a queue of one: this system cannot simulate endpoints \
         that do not answer; run the fleet on Linux, or with a dead fraction of 0"
    )]
    NoBlackHole {
        /// Address of the listener.
        address: SocketAddr,
        /// Number of connections that the listener accepted.
        connections: usize,
    },
    /// The plan has more endpoints than 127.0.0.0/8 has addresses.
    #[error("the plan has more endpoints than 127.0.0.0/8 has addresses")]
    TooLarge,
}
