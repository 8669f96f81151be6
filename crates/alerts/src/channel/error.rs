//! Why a channel did not take a message.

use std::fmt;
use std::time::Duration;

use callout::HttpError;

/// Why a channel did not take a message.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct ChannelError {
    /// The error, without secrets.
    pub reason: String,
    /// Whether another try may help.
    pub retry: bool,
    /// Not before this has passed, if the other side said so.
    pub retry_after: Option<Duration>,
}

impl ChannelError {
    /// Trying again cannot help: the configuration is to be corrected.
    pub(crate) fn wrong(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string(), retry: false, retry_after: None }
    }

    /// Trying again may help.
    pub(crate) fn later(reason: impl fmt::Display, retry_after: Option<Duration>) -> Self {
        Self { reason: reason.to_string(), retry: true, retry_after }
    }
}

impl From<HttpError> for ChannelError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Misconfigured { .. } => Self::wrong(error),
            _ => Self::later(error, None),
        }
    }
}
