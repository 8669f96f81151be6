//! Errors of connections to database servers.

use std::io;

use http_relay::upstream::UpstreamConnectError;

/// Reason why the proxy cannot connect to the database server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error(transparent)]
    Connect(#[from] UpstreamConnectError),
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error("the database server does not accept TLS, which the proxy requires")]
    NoTls,
}
