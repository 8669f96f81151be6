//! Errors of joining hosts, and of requests to the control plane.

use std::time::Duration;

use crate::state_folder::StateError;

/// Reason why a request to the server's API failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server did not respond.
    #[error("{server} does not answer: {reason}")]
    Unavailable {
        /// URL of the server that did not respond.
        server: String,
        /// The error of the connection.
        reason: String,
    },
    /// The server rejected the request.
    #[error("{server} rejects the request ({status}): {reason}")]
    Refused {
        /// URL of the server that rejected the request.
        server: String,
        /// HTTP status of the response.
        status: u16,
        /// Reason that the server returned.
        reason: String,
        /// Delay that the server requests before a retry.
        retry_after: Option<Duration>,
    },
    /// The response is invalid.
    #[error("invalid response from {server}: {reason}")]
    Answer {
        /// URL of the server that sent the invalid response.
        server: String,
        /// Description of the invalid part of the response.
        reason: String,
    },
}

impl ApiError {
    /// Returns the delay that the server requests before a retry.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns whether a retry may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::Refused { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            Self::Answer { .. } => false,
        }
    }
}

/// Reason why a host cannot join or continue.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The server's URL is invalid.
    #[error("{0:?} is not a server address: give https://HOST or https://HOST:PORT")]
    Server(String),
    /// The trust anchors or the pin are invalid.
    #[error("{0}")]
    Trust(String),
    /// A key or CSR could not be generated, or the server's response does not match it.
    #[error("{0}")]
    Identity(String),
    /// The state directory cannot be read or written.
    #[error("state folder: {0}")]
    State(#[from] StateError),
    /// A request to the server failed.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl JoinError {
    /// Returns whether the server did not respond, which may be temporary.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Api(ApiError::Unavailable { .. }))
    }
}
