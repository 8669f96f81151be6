//! Errors of the client.

use super::address::Server;
use super::options::SERVERS_MAX;
use crate::wire::ErrorCode;

/// Reason why the client cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClientStartError {
    /// No server is configured.
    #[error("no key service is configured")]
    NoServer,
    /// The configuration has more than [`SERVERS_MAX`] servers.
    #[error("{0} key services are configured; at most {SERVERS_MAX} are supported")]
    TooMany(usize),
    /// A server uses TLS, but no client certificate is configured.
    #[error("{0} uses TLS: configure a client certificate, and trust anchors for the server")]
    NoCertificate(Server),
    /// The host is not a valid name for a certificate.
    #[error("the host of {0} is not valid as a certificate name")]
    BadName(Server),
    /// A root or the client's own certificate is invalid.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Reason why a key service sent no reply to a request.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ClientError {
    /// The deadline passed. A later reply is dropped.
    #[error("{0} did not answer in time")]
    Late(Server),
    /// The server has the maximum number of pending requests.
    #[error("too many concurrent requests to {0}: retry later")]
    Overloaded(Server),
    /// The connection was lost while the request was in progress.
    #[error("the connection to {0} was lost")]
    Lost(Server),
    /// No server is connected. Operator: check `bulla_keyless_client_up`, and the service.
    #[error("no key service can be reached")]
    Unreachable,
    /// The server refused the request.
    #[error("{server} answered with an error: {code}", code = code.name())]
    Refused {
        /// Server that refused the request.
        server: Server,
        /// Reason for the refusal, as sent by the server.
        code: ErrorCode,
    },
    /// The payload is longer than a message permits.
    #[error("the data to sign is too long for one message of the Keyless protocol (65,535 bytes)")]
    TooLong,
}

impl ClientError {
    /// Returns whether another server may succeed. True if this server is disconnected, overloaded or reports an internal error. An
    /// error of the key itself would be the same on every server.
    pub(super) fn may_go_elsewhere(&self) -> bool {
        match self {
            Self::Overloaded(_) | Self::Lost(_) | Self::Unreachable => true,
            Self::Refused { code, .. } => *code == ErrorCode::Internal,
            Self::Late(_) | Self::TooLong => false,
        }
    }

    /// Returns the error's name in metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Late(_) => "late",
            Self::Overloaded(_) => "overloaded",
            Self::Lost(_) => "lost",
            Self::Unreachable => "unreachable",
            Self::Refused { code, .. } => code.name(),
            Self::TooLong => "too-long",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_internal_errors_and_lost_connections_allow_failover() {
        let server = Server::Unix("x".into());
        for code in ErrorCode::ALL {
            let refused = ClientError::Refused { server: server.clone(), code };
            assert_eq!(refused.may_go_elsewhere(), code == ErrorCode::Internal, "{code:?}");
        }
        assert!(!ClientError::Late(server.clone()).may_go_elsewhere());
        assert!(ClientError::Lost(server).may_go_elsewhere());
    }
}
