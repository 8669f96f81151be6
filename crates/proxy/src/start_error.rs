//! Errors that prevent the start of the proxy.

use std::io;
use std::net::SocketAddr;

use keys::KeyError;
use outbound::http::SetupError;
use outbound::resolve::ResolveError;

use crate::access::BadOwnTls;
use crate::mint::MintError;
use crate::minting;
use crate::permission::BadPermission;

/// Errors that prevent the start of the proxy.
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
    /// The first leaf key cannot be generated.
    #[error("no key for leaves: {0}")]
    Key(#[from] KeyError),
    /// The TLS library rejected its configuration.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// There are no trust anchors, so upstreams could not be verified.
    #[error("there are no roots to hold upstreams against")]
    NoRoots,
    /// TLS to the proxy itself cannot be set up.
    #[error("clients cannot speak TLS to the proxy: {0}")]
    OwnTls(#[from] BadOwnTls),
    /// The system's random number generator failed.
    #[error("the system gives no randomness")]
    NoRandomness,
    /// The HTTP client for token issuers cannot be set up.
    #[error("the keys of issuers of tokens cannot be fetched: {0}")]
    Issuers(SetupError),
    /// The access log cannot be opened.
    #[error("the access log cannot be written: {0}")]
    AccessLog(io::Error),
    /// The audit log cannot be opened.
    #[error("the audit log cannot be written: {0}")]
    AuditLog(io::Error),
    /// The system's DNS resolver cannot be set up.
    #[error("names cannot be resolved: {0}")]
    Resolver(#[from] ResolveError),
    /// Creating the intermediate CA failed.
    #[error("no intermediate authority: {0}")]
    Intermediate(MintError),
    /// The configuration of the permission service is invalid.
    #[error(transparent)]
    Permission(#[from] BadPermission),
    /// The listener for consumers of leaves cannot start.
    #[error("leaves are not handed out: {0}")]
    Minting(#[from] minting::StartError),
}
