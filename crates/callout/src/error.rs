//! Errors of requests to a configured service.

/// Reason why a request to a configured service failed. The texts contain no secrets.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HttpError {
    /// The configuration is invalid: an operator must change it.
    #[error("the configuration of the service does not work: {reason}")]
    Misconfigured {
        /// The reason, and what to do about it.
        reason: String,
    },
    /// The service cannot be reached, or its response cannot be understood.
    #[error("the service is not available: {reason}")]
    Unavailable {
        /// Description of the failure.
        reason: String,
    },
    /// The request did not finish within its timeout.
    #[error("timed out while {stage}")]
    TimedOut {
        /// The stage of the request that timed out, as a text for the error.
        stage: &'static str,
    },
}

impl HttpError {
    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into() }
    }

    pub(crate) fn misconfigured(reason: impl Into<String>) -> Self {
        Self::Misconfigured { reason: reason.into() }
    }
}
