//! The host's side of joining: a key made there, a server that is asked, and what is kept of both.

mod identity;
mod server;
mod trust;

use x509::Fingerprint;

use crate::deploy::StateError;
pub(crate) use identity::{Identity, IdentityFolder, bare_csr, read_key};
pub use server::ApiError;
pub(crate) use server::{REQUEST, ServerApi};
pub(crate) use trust::{Trust, server_of};

/// Why a host does not get on with its server.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The server's address.
    #[error("{0:?} is no server's address: give https://HOST or https://HOST:PORT")]
    Server(String),
    /// What the server is to be trusted by.
    #[error("{0}")]
    Trust(String),
    /// Keys or requests could not be made, or what the server sent fits neither.
    #[error("{0}")]
    Identity(String),
    /// The folder of what is kept.
    #[error("the folder of its state: {0}")]
    State(#[from] StateError),
    /// The server.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// What the server is trusted by before it has said what to trust it by: certificates (PEM), else one that is pinned, else
/// the host's roots.
pub(crate) fn first_trust(ca_pem: Option<&str>, ca_sha256: Option<Fingerprint>) -> Result<Trust, HostError> {
    match (ca_pem, ca_sha256) {
        (Some(pem), _) => Trust::roots(pem),
        (None, Some(pin)) => Ok(Trust::Pinned(pin)),
        (None, None) => Ok(Trust::System),
    }
}
