//! Errors of sessions: what happened, and what to do.

use std::borrow::Cow;
use std::io;

use http_relay::upstream::UpstreamConnectError;
use hyper::StatusCode;

use super::dial_error::DialError;
use crate::access::Denied;
use crate::gateway::Refused;
use crate::requests::{AuditWriteError, NoLogin, SecretUnavailable};

pub(crate) const ASK_OPERATOR: &str = "Ask the operator of this proxy.";
pub(crate) const RETRY: &str = "Retry later. If it persists, ask the operator of this proxy.";

/// An error that ends a session before its first query or command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
    pub(crate) hint: Cow<'static, str>,
    /// HTTP status that logs show for this failure.
    pub(crate) status: StatusCode,
    /// Reason in logs.
    pub(crate) reason: &'static str,
    /// Error code of the database server that the client gets instead of the code of `kind`.
    pub(crate) server_code: Option<String>,
}

/// Kind of a [`Failure`]. Each protocol has its own code for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FailureKind {
    /// The client broke the protocol, or did not authenticate in time.
    Protocol,
    /// The protocol has this function, but the proxy does not support it.
    Unsupported,
    /// The proxy does not know the token or password.
    WrongToken,
    /// The policy, or the proxy, does not allow the session.
    Forbidden,
    /// The identity reached a limit.
    TooMany,
    /// The proxy cannot serve the session now.
    Unavailable,
    /// The proxy cannot connect to the server.
    Unreachable,
    /// The server rejected the login or the session.
    Rejected,
    /// The connection broke.
    Broken,
    /// The client lost its access during the login.
    Stopped,
}

impl Failure {
    pub(crate) fn new(
        (kind, status, reason): (FailureKind, StatusCode, &'static str),
        message: impl ToString,
        hint: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { kind, message: message.to_string(), hint: hint.into(), status, reason, server_code: None }
    }

    /// Creates the error for a client that sends its token without TLS. `hint`: how the client uses TLS.
    pub(crate) fn needs_tls(hint: &'static str) -> Self {
        let kind = (FailureKind::Forbidden, StatusCode::FORBIDDEN, "no-tls");
        let hint = format!(
            "{hint} The operator of this proxy sets its certificate in [proxy.access]: certificate_file and key_file."
        );
        Self::new(kind, "the proxy accepts a token over TLS only, except from this machine", hint)
    }

    pub(crate) fn late() -> Self {
        let kind = (FailureKind::Protocol, StatusCode::REQUEST_TIMEOUT, "startup-deadline");
        Self::new(kind, "the client did not finish its startup in time", "Connect again.")
    }

    /// Creates the error for a client that breaks the protocol.
    pub(crate) fn protocol(error: impl ToString, hint: &'static str) -> Self {
        Self::new((FailureKind::Protocol, StatusCode::BAD_REQUEST, "protocol"), error, hint)
    }

    pub(crate) fn stopped() -> Self {
        let kind = (FailureKind::Stopped, StatusCode::FORBIDDEN, "stopped");
        Self::new(kind, "the identity or token of this client was removed, or has expired", ASK_OPERATOR)
    }

    /// Creates the error for a session whose login the server did not accept.
    pub(crate) fn login(error: impl ToString, server_code: Option<String>) -> Self {
        let kind = (FailureKind::Rejected, StatusCode::BAD_GATEWAY, "login");
        Self { server_code, ..Self::new(kind, error, ASK_OPERATOR) }
    }
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        let (kind, status) = match denied {
            Denied::Missing | Denied::Wrong => {
                (FailureKind::WrongToken, StatusCode::PROXY_AUTHENTICATION_REQUIRED)
            }
            Denied::TooOften => (FailureKind::TooMany, StatusCode::TOO_MANY_REQUESTS),
            Denied::Busy | Denied::NoKeys => (FailureKind::Unavailable, StatusCode::SERVICE_UNAVAILABLE),
        };
        let hint = match denied {
            Denied::Missing | Denied::Wrong => {
                "The user is the name of the proxy token, and the password is the token. The database's own users and passwords are \
                 not used here."
            }
            Denied::TooOften | Denied::Busy | Denied::NoKeys => RETRY,
        };
        Self::new((kind, status, denied.name()), denied, hint)
    }
}

impl From<Box<Refused>> for Failure {
    fn from(refused: Box<Refused>) -> Self {
        let page = refused.page;
        let status = StatusCode::from_u16(page.status).unwrap_or(StatusCode::FORBIDDEN);
        let kind = match status {
            StatusCode::TOO_MANY_REQUESTS => FailureKind::TooMany,
            status if status.is_server_error() => FailureKind::Unavailable,
            _ => FailureKind::Forbidden,
        };
        Self::new((kind, status, page.reason), page.detail, page.advice)
    }
}

impl From<AuditWriteError> for Failure {
    fn from(error: AuditWriteError) -> Self {
        let kind = (FailureKind::Unavailable, StatusCode::SERVICE_UNAVAILABLE, "audit-log");
        Self::new(kind, error, RETRY)
    }
}

impl From<NoLogin> for Failure {
    fn from(error: NoLogin) -> Self {
        let kind = match &error {
            NoLogin::NotGranted(_) => (FailureKind::Forbidden, StatusCode::FORBIDDEN, "no-credential"),
            NoLogin::Insecure(..) => (FailureKind::Forbidden, StatusCode::FORBIDDEN, "unverified-server"),
            NoLogin::Unavailable(SecretUnavailable::StoreUnavailable(_)) => {
                (FailureKind::Unavailable, StatusCode::SERVICE_UNAVAILABLE, "credential")
            }
            NoLogin::Unavailable(SecretUnavailable::Unusable(_)) => {
                (FailureKind::Unavailable, StatusCode::BAD_GATEWAY, "credential")
            }
        };
        let rule = "Ask the operator of this proxy for a rule of [[proxy.rules]].";
        match error {
            // The cause is only in the log, because it may contain file names and paths.
            NoLogin::Unavailable(_) => {
                Self::new(kind, "the credential of the database is not available", RETRY)
            }
            NoLogin::NotGranted(protocol) => {
                let port = protocol.usual_port();
                let hint = format!(
                    "{rule} If the port of the database server is not {port}, `inject` of the rule needs `port`."
                );
                Self::new(kind, error, hint)
            }
            NoLogin::Insecure(_) => Self::new(kind, error, rule),
        }
    }
}

impl From<DialError> for Failure {
    fn from(error: DialError) -> Self {
        tracing::info!(%error, "cannot connect a session to its database server");
        let (message, hint) = match error {
            DialError::NoTls => (error.to_string(), ASK_OPERATOR),
            DialError::Connect(UpstreamConnectError::Tls(_)) => (
                "the proxy does not trust the TLS certificate of the database server".to_owned(),
                "Ask the operator of this proxy to set the trust anchors of the server: ca_files in [[proxy.upstreams]].",
            ),
            DialError::Connect(
                UpstreamConnectError::Guarded(_)
                | UpstreamConnectError::NotAllowed
                | UpstreamConnectError::Rejected,
            ) => (
                "the proxy may not connect to the address of the database server".to_owned(),
                "Ask the operator of this proxy to open the network of the server: allow_networks in [proxy.policy].",
            ),
            DialError::Connect(_) | DialError::Io(_) => {
                ("the proxy cannot connect to the database server".to_owned(), RETRY)
            }
        };
        Self::new((FailureKind::Unreachable, StatusCode::BAD_GATEWAY, "unreachable"), message, hint)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new((FailureKind::Broken, StatusCode::BAD_GATEWAY, "broken"), error, RETRY)
    }
}
