//! Why a request to a configured service failed.

/// Why a request to a configured service failed. The texts hold no secrets; they call the service an issuer, because issuers
/// were the first such services and people match on the texts.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HttpError {
    /// The configuration does not work: a person must change it.
    #[error("the issuer's configuration does not work: {reason}")]
    Misconfigured {
        /// The error, and what to do.
        reason: String,
    },
    /// The service cannot be reached, or its answer cannot be understood.
    #[error("the issuer is not available: {reason}")]
    Unavailable {
        /// What happened.
        reason: String,
    },
    /// The deadline passed.
    #[error("no answer in time while {stage}")]
    TimedOut {
        /// The stage that timed out.
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
