//! Errors that prevent the start of the proxy.

use std::io;
use std::net::SocketAddr;

use keys::KeyError;
use outbound::http::SetupError;
use outbound::resolve::ResolveError;

use crate::access::ProxyTlsError;
use crate::hooks::BadHook;
use crate::mint::MintError;
use crate::minting;
use crate::permission::BadPermission;

/// Errors that prevent the start of the proxy.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The proxy cannot listen on an address, for example because the address is in use or the process lacks the permission.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Address on which the proxy cannot listen.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The first leaf key cannot be generated.
    #[error("cannot create a key for leaf certificates: {0}")]
    Key(#[from] KeyError),
    /// The TLS library rejected its configuration.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// There are no trust anchors, so upstreams could not be verified.
    #[error("no trust anchors for upstreams are configured")]
    NoRoots,
    /// TLS to the proxy itself cannot be set up.
    #[error("cannot set up TLS between clients and the proxy: {0}")]
    OwnTls(#[from] ProxyTlsError),
    /// The system's random number generator failed.
    #[error("the operating system returned no random bytes")]
    NoRandomness,
    /// The HTTP client for token issuers cannot be set up.
    #[error("cannot set up the client that fetches the keys of token issuers: {0}")]
    Issuers(SetupError),
    /// The access log cannot be opened.
    #[error("cannot write the access log: {0}")]
    AccessLog(io::Error),
    /// The audit log cannot be opened.
    #[error("cannot write the audit log: {0}")]
    AuditLog(io::Error),
    /// The system's DNS resolver cannot be set up.
    #[error("cannot set up the DNS resolver: {0}")]
    Resolver(#[from] ResolveError),
    /// Creating the intermediate CA failed.
    #[error("cannot create the intermediate CA: {0}")]
    Intermediate(MintError),
    /// The configuration of the permission service is invalid.
    #[error(transparent)]
    Permission(#[from] BadPermission),
    /// A hook is not configured correctly.
    #[error(transparent)]
    Hook(#[from] BadHook),
    /// The listener for consumers of leaves cannot start.
    #[error("cannot serve leaf certificates to consumers: {0}")]
    Minting(#[from] minting::StartError),
}
