//! Why the proxy did not start.

use std::io;
use std::net::SocketAddr;

use keys::KeyError;
use outbound::http::SetupError;
use outbound::resolve::ResolveError;

use crate::access::BadOwnTls;
use crate::mint::MintError;
use crate::minting;
use crate::permission::BadPermission;

/// Why the proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is in use, or not permitted.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The first key for leaves.
    #[error("no key for leaves: {0}")]
    Key(#[from] KeyError),
    /// The TLS library.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// No trust anchors: upstreams could not be authenticated.
    #[error("there are no roots to hold upstreams against")]
    NoRoots,
    /// Its own TLS.
    #[error("clients cannot speak TLS to the proxy: {0}")]
    OwnTls(#[from] BadOwnTls),
    /// The system's generator of randomness.
    #[error("the system gives no randomness")]
    NoRandomness,
    /// Issuers of tokens.
    #[error("the keys of issuers of tokens cannot be fetched: {0}")]
    Issuers(SetupError),
    /// The access log.
    #[error("the access log cannot be written: {0}")]
    AccessLog(io::Error),
    /// The audit log.
    #[error("the audit log cannot be written: {0}")]
    AuditLog(io::Error),
    /// This machine's resolver.
    #[error("names cannot be resolved: {0}")]
    Resolver(#[from] ResolveError),
    /// Creating the intermediate CA failed.
    #[error("no intermediate authority: {0}")]
    Intermediate(MintError),
    /// The configuration of the permission service is invalid.
    #[error(transparent)]
    Permission(#[from] BadPermission),
    /// Leaves for others.
    #[error("leaves are not handed out: {0}")]
    Minting(#[from] minting::StartError),
}
