//! Errors of notification channels.

use std::fmt;
use std::time::Duration;

use callout::HttpError;

/// Reason why a channel did not accept a message.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct ChannelError {
    /// The error, without secrets.
    pub reason: String,
    /// Whether a retry may help.
    pub retry: bool,
    /// Minimum wait before the next attempt, if the server sent one.
    pub retry_after: Option<Duration>,
}

impl ChannelError {
    /// Builds an error that a retry cannot fix: the configuration must be corrected.
    pub(crate) fn permanent(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string(), retry: false, retry_after: None }
    }

    /// Builds an error that a retry may fix.
    pub(crate) fn transient(reason: impl fmt::Display, retry_after: Option<Duration>) -> Self {
        Self { reason: reason.to_string(), retry: true, retry_after }
    }
}

impl From<HttpError> for ChannelError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Misconfigured { .. } => Self::permanent(error),
            _ => Self::transient(error, None),
        }
    }
}
