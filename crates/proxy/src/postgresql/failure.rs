//! Errors that PostgreSQL clients get: SQLSTATE, what happened, and what to do.

use std::borrow::Cow;

use bytes::BytesMut;
use hyper::StatusCode;

use super::login::{AUTHENTICATION_CLASS, LoginError};
use super::message;
use super::packet::BadPacket;
use crate::sessions::{ASK_OPERATOR, Failure, FailureKind, RETRY};

/// Returns the SQLSTATE of a failure.
pub(super) fn sqlstate(failure: &Failure) -> Cow<'_, str> {
    if let Some(code) = &failure.server_code {
        return code.into();
    }
    match failure.kind {
        FailureKind::Protocol => "08P01",
        FailureKind::Unsupported => "0A000",
        FailureKind::WrongToken => "28P01",
        FailureKind::Forbidden => "28000",
        FailureKind::TooMany => "53300",
        FailureKind::Unavailable => "57P03",
        FailureKind::Unreachable => "08001",
        FailureKind::Rejected => "08004",
        FailureKind::Broken => "08006",
        FailureKind::Stopped => "57P01",
    }
    .into()
}

/// Encodes a failure as a message to the client.
pub(super) fn encoded(failure: &Failure) -> BytesMut {
    message::error(&sqlstate(failure), &failure.message, &failure.hint)
}

pub(super) fn needs_tls() -> Failure {
    Failure::needs_tls("Connect with sslmode=verify-full.")
}

pub(super) fn replication() -> Failure {
    let kind = (FailureKind::Unsupported, StatusCode::FORBIDDEN, "replication");
    let message = "the proxy does not support replication connections: they are not limited to one database";
    Failure::new(kind, message, "Leave the parameter `replication` out.")
}

pub(super) fn protocol(error: impl ToString) -> Failure {
    Failure::protocol(error, "Use a PostgreSQL client with version 3 of the protocol.")
}

/// Creates the error for a session that the server refused after the login.
pub(super) fn of_server(code: Option<String>, text: &str) -> Failure {
    let kind = (FailureKind::Rejected, StatusCode::BAD_GATEWAY, "database");
    let message = format_args!("the database server refused the session: {text}");
    Failure { server_code: code, ..Failure::new(kind, message, ASK_OPERATOR) }
}

pub(super) fn no_randomness() -> Failure {
    let kind = (FailureKind::Unavailable, StatusCode::SERVICE_UNAVAILABLE, "randomness");
    Failure::new(kind, "the operating system returned no random bytes", RETRY)
}

impl From<BadPacket> for Failure {
    fn from(error: BadPacket) -> Self {
        protocol(error)
    }
}

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        let code = match &error {
            LoginError::Rejected(code) => code.clone().filter(|code| !code.starts_with(AUTHENTICATION_CLASS)),
            _ => None,
        };
        Self::login(error, code)
    }
}
