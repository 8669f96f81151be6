//! Why a host cannot join, or a request of its fails.

use std::time::Duration;

use crate::state_folder::StateError;

/// Why a request came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// No answer.
    #[error("{server} does not answer: {reason}")]
    Away {
        /// The server.
        server: String,
        /// The error.
        reason: String,
    },
    /// A refusal.
    #[error("{server} refuses ({status}): {reason}")]
    Refused {
        /// The server.
        server: String,
        /// The HTTP status.
        status: u16,
        /// The server's error.
        reason: String,
        /// When it wants to be retried.
        retry_after: Option<Duration>,
    },
    /// An answer that makes no sense.
    #[error("{server} answers what cannot be understood: {reason}")]
    Answer {
        /// The server.
        server: String,
        /// The error.
        reason: String,
    },
}

impl ApiError {
    /// When the server wants to be retried.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether the same again may go differently.
    #[must_use]
    pub fn can_heal(&self) -> bool {
        match self {
            Self::Away { .. } => true,
            Self::Refused { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            Self::Answer { .. } => false,
        }
    }
}

/// Why a host cannot join, or go on.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The server's address.
    #[error("{0:?} is no server's address: give https://HOST or https://HOST:PORT")]
    Server(String),
    /// What the server is to be trusted by.
    #[error("{0}")]
    Trust(String),
    /// Keys or requests could not be made, or what the server sent fits neither.
    #[error("{0}")]
    Identity(String),
    /// The folder.
    #[error("the state folder: {0}")]
    State(#[from] StateError),
    /// The server.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl JoinError {
    /// Whether there was no answer: that may pass.
    #[must_use]
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Api(ApiError::Away { .. }))
    }
}
