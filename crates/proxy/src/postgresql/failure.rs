//! Errors that PostgreSQL clients get: SQLSTATE, what happened, and what to do.

use std::borrow::Cow;
use std::io;

use bytes::BytesMut;
use http_relay::upstream::UpstreamConnectError;
use hyper::StatusCode;

use super::login::LoginError;
use super::message;
use super::packet::BadPacket;
use super::upstream::DialError;
use crate::access::Denied;
use crate::gateway::Refused;
use crate::requests::{AuditWriteError, NoLogin, SecretUnavailable};

/// Class of SQLSTATEs of failed authentication.
const AUTHENTICATION_CLASS: &str = "28";
const ASK_OPERATOR: &str = "Ask the operator of this proxy.";
const RETRY: &str = "Retry later. If it persists, ask the operator of this proxy.";

/// An error that ends a session before its first query.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: Cow<'static, str>,
    pub(super) message: String,
    pub(super) hint: Cow<'static, str>,
    /// HTTP status that logs show for this failure.
    pub(super) status: StatusCode,
    /// Reason in logs.
    pub(super) reason: &'static str,
}

impl Failure {
    fn new(
        (code, status, reason): (&'static str, StatusCode, &'static str),
        message: impl ToString,
        hint: &'static str,
    ) -> Self {
        Self { code: code.into(), message: message.to_string(), hint: hint.into(), status, reason }
    }

    /// Encodes the error as a message to the client.
    pub(super) fn encoded(&self) -> BytesMut {
        message::error(&self.code, &self.message, &self.hint)
    }

    pub(super) fn needs_tls() -> Self {
        let (kind, hint) = (
            ("28000", StatusCode::FORBIDDEN, "no-tls"),
            "Connect with sslmode=verify-full. The operator of this proxy sets its certificate in [proxy.access]: certificate_file \
             and key_file.",
        );
        Self::new(kind, "the proxy accepts a token over TLS only, except from this machine", hint)
    }

    pub(super) fn replication() -> Self {
        let kind = ("0A000", StatusCode::FORBIDDEN, "replication");
        let message =
            "the proxy does not support replication connections: they are not limited to one database";
        Self::new(kind, message, "Leave the parameter `replication` out.")
    }

    pub(super) fn late() -> Self {
        let kind = ("08P01", StatusCode::REQUEST_TIMEOUT, "startup-deadline");
        Self::new(kind, "the client did not finish its startup in time", "Connect again.")
    }

    pub(super) fn protocol(error: impl ToString) -> Self {
        let kind = ("08P01", StatusCode::BAD_REQUEST, "protocol");
        Self::new(kind, error, "Use a PostgreSQL client with version 3 of the protocol.")
    }

    pub(super) fn stopped() -> Self {
        let kind = ("57P01", StatusCode::FORBIDDEN, "stopped");
        Self::new(kind, "the identity or token of this client was removed, or has expired", ASK_OPERATOR)
    }

    /// Creates the error for a session that the server refused after the login.
    pub(super) fn of_server(code: Option<String>, text: &str) -> Self {
        let kind = ("08004", StatusCode::BAD_GATEWAY, "database");
        let failure =
            Self::new(kind, format_args!("the database server refused the session: {text}"), ASK_OPERATOR);
        Self { code: code.map_or(failure.code, Cow::Owned), ..failure }
    }

    pub(super) fn no_randomness() -> Self {
        let kind = ("57P03", StatusCode::SERVICE_UNAVAILABLE, "randomness");
        Self::new(kind, "the operating system returned no random bytes", RETRY)
    }
}

impl From<BadPacket> for Failure {
    fn from(error: BadPacket) -> Self {
        Self::protocol(error)
    }
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        let (code, status) = match denied {
            Denied::Missing | Denied::Wrong => ("28P01", StatusCode::PROXY_AUTHENTICATION_REQUIRED),
            Denied::TooOften => ("53300", StatusCode::TOO_MANY_REQUESTS),
            Denied::Busy | Denied::NoKeys => ("57P03", StatusCode::SERVICE_UNAVAILABLE),
        };
        let hint = match denied {
            Denied::Missing | Denied::Wrong => {
                "The user is the name of the proxy token, and the password is the token. The database's own users and passwords are \
                 not used here."
            }
            Denied::TooOften | Denied::Busy | Denied::NoKeys => RETRY,
        };
        Self::new((code, status, denied.name()), denied, hint)
    }
}

impl From<Box<Refused>> for Failure {
    fn from(refused: Box<Refused>) -> Self {
        let page = refused.page;
        let status = StatusCode::from_u16(page.status).unwrap_or(StatusCode::FORBIDDEN);
        let code = match status {
            StatusCode::TOO_MANY_REQUESTS => "53300",
            status if status.is_server_error() => "57P03",
            _ => "28000",
        };
        Self { hint: page.advice.into(), ..Self::new((code, status, page.reason), page.detail, "") }
    }
}

impl From<AuditWriteError> for Failure {
    fn from(error: AuditWriteError) -> Self {
        Self::new(("57P03", StatusCode::SERVICE_UNAVAILABLE, "audit-log"), error, RETRY)
    }
}

impl From<NoLogin> for Failure {
    fn from(error: NoLogin) -> Self {
        let (code, status, reason) = match &error {
            NoLogin::NotGranted => ("28000", StatusCode::FORBIDDEN, "no-credential"),
            NoLogin::Insecure(_) => ("28000", StatusCode::FORBIDDEN, "unverified-server"),
            NoLogin::Unavailable(SecretUnavailable::StoreUnavailable(_)) => {
                ("57P03", StatusCode::SERVICE_UNAVAILABLE, "credential")
            }
            NoLogin::Unavailable(SecretUnavailable::Unusable(_)) => {
                ("57P03", StatusCode::BAD_GATEWAY, "credential")
            }
        };
        // The cause is only in the log, because it may contain file names and paths.
        let (message, hint) = match error {
            NoLogin::Unavailable(_) => ("the credential of the database is not available".to_owned(), RETRY),
            error => (
                error.to_string(),
                "Ask the operator of this proxy for a rule of [[proxy.rules]]. If the port of the database server is not 5432, `inject` of the \
                 rule needs `port`.",
            ),
        };
        Self::new((code, status, reason), message, hint)
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
        Self::new(("08001", StatusCode::BAD_GATEWAY, "unreachable"), message, hint)
    }
}

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        let kind = ("08004", StatusCode::BAD_GATEWAY, "login");
        let code = match &error {
            LoginError::Rejected(code) => code.clone().filter(|code| !code.starts_with(AUTHENTICATION_CLASS)),
            _ => None,
        };
        let failure = Self::new(kind, &error, ASK_OPERATOR);
        Self { code: code.map_or(failure.code, Cow::Owned), ..failure }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(("08006", StatusCode::BAD_GATEWAY, "broken"), error, RETRY)
    }
}
