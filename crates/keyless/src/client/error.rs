//! Why the client cannot start, and why a request has no reply.

use super::address::Server;
use super::options::SERVERS_MAX;
use crate::wire::ErrorCode;

/// Why the client cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClientStartError {
    /// No server is configured.
    #[error("there is no key service to ask")]
    NoServer,
    /// More than [`SERVERS_MAX`].
    #[error("{0} key services are configured; at most {SERVERS_MAX} are supported")]
    TooMany(usize),
    /// A server over TLS, and no certificate for it.
    #[error("{0} is spoken to over TLS, which takes a certificate of our own and roots for its")]
    NoCertificate(Server),
    /// A host that is no name in certificates.
    #[error("{0} has no host that a certificate could name")]
    BadName(Server),
    /// A root, or the own certificate.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// Why there is no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ClientError {
    /// The deadline passed. Whatever comes later is dropped.
    #[error("{0} did not answer in time")]
    Late(Server),
    /// As many requests as may are under way there.
    #[error("too many concurrent requests to {0}: retry later")]
    Overloaded(Server),
    /// The connection was lost while the request was under way.
    #[error("the connection to {0} was lost")]
    Lost(Server),
    /// No server is connected. Operator: check `bulla_keyless_client_up`, and the service.
    #[error("no key service can be reached")]
    Unreachable,
    /// The server refused the request.
    #[error("{server} answered with an error: {code}", code = code.name())]
    Refused {
        /// The server.
        server: Server,
        /// The error code of the protocol.
        code: ErrorCode,
    },
    /// A payload longer than a message can hold.
    #[error("the request is longer than a message can be")]
    TooLong,
}

impl ClientError {
    /// Whether another server may do what this one did not: one that is gone or has too much to do says nothing of the key.
    /// A failure of the key itself is the same everywhere.
    pub(super) fn may_go_elsewhere(&self) -> bool {
        match self {
            Self::Overloaded(_) | Self::Lost(_) | Self::Unreachable => true,
            Self::Refused { code, .. } => *code == ErrorCode::Internal,
            Self::Late(_) | Self::TooLong => false,
        }
    }

    /// In metrics.
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
    fn only_what_says_nothing_of_the_key_is_asked_for_again() {
        let server = Server::Unix("x".into());
        for code in ErrorCode::ALL {
            let refused = ClientError::Refused { server: server.clone(), code };
            assert_eq!(refused.may_go_elsewhere(), code == ErrorCode::Internal, "{code:?}");
        }
        assert!(!ClientError::Late(server.clone()).may_go_elsewhere());
        assert!(ClientError::Lost(server).may_go_elsewhere());
    }
}
