//! Reasons why a hook makes no decision.

use std::time::Duration;

/// Reason why a hook made no decision.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum HookFault {
    /// The service cannot be reached, or reports an error.
    #[error("the service of the hook reports: {0}")]
    Unavailable(String),
    /// The service did not answer in time.
    #[error("the service of the hook did not answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// Too many requests wait for the service.
    #[error("too many requests wait for the service of the hook (calls_max)")]
    Busy,
    /// The service ended the stream without an answer.
    #[error("the service of the hook ended the stream without an answer")]
    Ended,
    /// The answer is not valid.
    #[error("the answer of the hook is not valid: {0}")]
    Invalid(&'static str),
    /// The answer changes a field that no hook may change.
    #[error("a hook may not change the field {0:?}")]
    Field(String),
}

impl From<tonic::Status> for HookFault {
    fn from(status: tonic::Status) -> Self {
        let message: String = status.message().chars().take(200).collect();
        Self::Unavailable(format!("{:?} {message}", status.code()))
    }
}
