//! How leaves are handed to other programs.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use keyless::server::{TlsError, TlsOptions};

use crate::Rules;
use crate::revocation::{BadLists, RevocationLists};

/// Names of all streams together, some 1 KiB each.
pub const NAMES_MAX: usize = 262_144;

/// Address or socket for consumers.
#[derive(Clone, Debug)]
pub enum Listen {
    /// Of this machine alone, in the clear.
    Loopback(SocketAddr),
    /// For its owner alone.
    Socket(PathBuf),
    /// Anywhere, with certificates on both sides.
    Tls(SocketAddr, TlsOptions),
}

/// How leaves are handed to others.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address or socket for consumers.
    pub listen: Listen,
    /// Lists of revoked certificates, where consumers show theirs.
    pub revoked: Option<RevocationLists>,
    /// The names there are leaves for: those that these rules would have intercepted.
    pub names: Rules,
    /// Connections at once; more are closed at once.
    pub connections_max: usize,
    /// Streams of secret discovery at once; more are refused.
    pub streams_max: usize,
    /// Names of one stream; more are refused.
    pub names_per_stream_max: usize,
    /// How long new leaves of a consumer stand over the same key.
    pub key_life: Duration,
    /// Consumers that have leaves over RSA, by their subject or one of their other names; anyone who is on this machine: `local`.
    pub rsa_consumers: Vec<String>,
}

/// Why leaves are not handed out.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is in use, or not permitted.
    #[error("cannot listen on {place}: {source}")]
    Bind {
        /// The location.
        place: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Anybody who sees the network would have the keys.
    #[error(
        "{0} is reachable from other machines, and leaves are sent with their private keys: use a Unix socket or a loopback address"
    )]
    InTheClear(SocketAddr),
    /// The certificates.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] TlsError),
    /// Of revoked certificates.
    #[error(transparent)]
    LoadedCrls(#[from] BadLists),
}
