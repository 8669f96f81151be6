//! Options of minting for other programs.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use keyless::server::{TlsError, TlsOptions};

use crate::Rules;
use crate::revocation::{BadCrls, RevocationLists};

/// Maximum names of all streams together, about 1 KiB each.
pub const NAMES_MAX: usize = 262_144;

/// Address or socket for consumers. Each kind protects the private keys in a different way.
#[derive(Clone, Debug)]
pub enum ConsumerAddress {
    /// Loopback address, without TLS.
    Loopback(SocketAddr),
    /// Unix socket, accessible by its owner only.
    Socket(PathBuf),
    /// Any address, with TLS and client certificates.
    Tls(SocketAddr, TlsOptions),
}

/// Options of minting for consumers.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address or socket for consumers.
    pub listen: ConsumerAddress,
    /// CRLs for consumers' certificates; `None` disables the revocation check.
    pub revoked: Option<RevocationLists>,
    /// Policy for requested names. A leaf is issued only for a name that these rules intercept.
    pub names: Rules,
    /// Maximum connections of consumers to this listener. At the maximum, a listener with TLS closes the connection that has been
    /// silent the longest; otherwise the new connection is closed.
    pub connections_max: usize,
    /// Maximum concurrent secret discovery streams; further ones are rejected.
    pub streams_max: usize,
    /// Maximum names of one stream; further ones are rejected.
    pub names_per_stream_max: usize,
    /// Time for which new leaves of a consumer use the same key.
    pub key_life: Duration,
    /// Consumers that get RSA leaves, by their subject or another name of their certificate; `local` for consumers on this machine.
    pub rsa_consumers: Vec<String>,
}

/// Reason why the listener cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is in use, or not permitted.
    #[error("cannot listen on {endpoint}: {source}")]
    Bind {
        /// Address or path of the listener.
        endpoint: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The address is reachable from other machines, so private keys could be intercepted.
    #[error(
        "{0} is reachable from other machines, and leaf certificates are sent with their private keys: use a Unix socket \
         or a loopback address"
    )]
    InTheClear(SocketAddr),
    /// The certificates for the listener are invalid.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] TlsError),
    /// The CRLs cannot be read or parsed.
    #[error(transparent)]
    LoadedCrls(#[from] BadCrls),
}
