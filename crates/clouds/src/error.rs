//! Why a source, or a part of it, could not be listed.

use outbound::pool::CallError;

use crate::api_error::ApiError;

/// Nobody reads the events any more: stop listing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stopped;

/// Why a source, or a part of it, could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Operator: give the credentials the permission named, or other credentials.
    #[error("{operation} is not allowed: {answer}")]
    Denied {
        /// The call.
        operation: &'static str,
        /// The error of the provider.
        answer: ApiError,
    },
    /// The provider answered with an error, repeatedly where that could have healed.
    #[error("{operation} failed: {answer}")]
    Failed {
        /// The call.
        operation: &'static str,
        /// The provider's words.
        answer: ApiError,
    },
    /// Operator: the provider allows less than was asked of it within the time; allow more time or lower the rates.
    #[error("{0}")]
    Throttled(String),
    /// The request to the provider timed out.
    #[error("{0}")]
    Silent(String),
    /// The provider says itself that its list is not whole.
    #[error("the provider could not reach it")]
    Unreachable,
    /// More certificates than are read from one source.
    #[error("more than {max} certificates; the rest was not read")]
    TooMany {
        /// The bound.
        max: usize,
    },
    /// The time for the whole listing was up.
    #[error("the time for listing was up")]
    OutOfTime,
    /// Anyone who reads the events is gone, or the listing was stopped.
    #[error("stopped")]
    Stopped,
    /// The source's task came to an unforeseen end.
    #[error("the source broke off: {0}")]
    BrokeOff(String),
    /// Operator: mend the source's configuration.
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
            no_turn @ CallError::NoTurn { .. } => Self::Throttled(no_turn.to_string()),
            silent @ CallError::Silent { .. } => Self::Silent(silent.to_string()),
        }
    }
}

impl From<Stopped> for SourceError {
    fn from(Stopped: Stopped) -> Self {
        Self::Stopped
    }
}
