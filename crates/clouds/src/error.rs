//! Errors of listing the certificates of a source or of a part of it.

use outbound::pool::CallError;

use crate::api_error::ApiError;

/// The receiver of the events was dropped: the listing must stop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stopped;

/// An error of listing a source or a part of it.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The provider denied access. Operator: grant the permission named in the message, or use other credentials.
    #[error("{operation} is not allowed: {answer}")]
    Denied {
        /// Name of the API operation.
        operation: &'static str,
        /// Error code and message of the provider.
        answer: ApiError,
    },
    /// The provider returned an error, after retries if the error could be temporary.
    #[error("{operation} failed: {answer}")]
    Failed {
        /// Name of the API operation.
        operation: &'static str,
        /// Error code and message of the provider.
        answer: ApiError,
    },
    /// The provider's quota is too low for the listing. Operator: allow more time or lower the rates.
    #[error("{0}")]
    Throttled(String),
    /// The request to the provider timed out.
    #[error("{0}")]
    Silent(String),
    /// The provider reported that its list is incomplete.
    #[error("the provider reports this location as unreachable, so its certificates are not listed")]
    Unreachable,
    /// The source has more objects than are read from one source.
    #[error("the source has more than {max} {what}: the others were not read")]
    TooMany {
        /// Noun for the objects, in the plural.
        what: &'static str,
        /// Maximum number of objects.
        max: usize,
    },
    /// The time limit of the whole listing was reached.
    #[error("the listing of the source timed out")]
    OutOfTime,
    /// The receiver of the events was dropped, or the listing was stopped.
    #[error("the listing of the source was stopped")]
    Stopped,
    /// The source's task ended unexpectedly.
    #[error("the source ended unexpectedly: {0}")]
    BrokeOff(String),
    /// Invalid configuration. Operator: fix the source's configuration.
    #[error("{0}")]
    Configuration(String),
}

impl From<CallError<ApiError>> for SourceError {
    fn from(error: CallError<ApiError>) -> Self {
        match error {
            CallError::Failed { operation, source: answer } if answer.denied => {
                Self::Denied { operation, answer }
            }
            CallError::Failed { operation, source: answer } => Self::Failed { operation, answer },
            no_turn @ CallError::NotSent { .. } => Self::Throttled(no_turn.to_string()),
            silent @ CallError::Silent { .. } => Self::Silent(silent.to_string()),
        }
    }
}

impl From<Stopped> for SourceError {
    fn from(Stopped: Stopped) -> Self {
        Self::Stopped
    }
}
