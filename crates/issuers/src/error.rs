//! Why there is no certificate, and what to do about it.

use std::time::Duration;

use callout::HttpError;

use crate::secrets::BadSecret;

/// Why an issuer gave nothing. The texts are fit for people and hold no secrets.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum IssuerError {
    /// It will not issue this: a name it may not certify, a key it does not take, a policy.
    #[error("the issuer refused: {reason}")]
    Refused {
        /// In its words.
        reason: String,
    },
    /// It wants proof of control over a name and did not get it.
    #[error("control over {name} was not proven: {reason}")]
    Unproven {
        /// Which name.
        name: String,
        /// What the issuer, or our own look at the world, says.
        reason: String,
    },
    /// It does not take our credentials, or they may not do this.
    #[error("the issuer does not accept our credentials: {reason}")]
    Denied {
        /// In its words.
        reason: String,
    },
    /// The rate limit is reached; the issuer works.
    #[error("the issuer's rate limit is reached: {reason}")]
    RateLimited {
        /// Not before this has passed, if it said so.
        retry_after: Option<Duration>,
        /// In its words.
        reason: String,
    },
    /// It cannot be reached, is broken, or answers what cannot be understood.
    #[error("the issuer is not available: {reason}")]
    Unavailable {
        /// The error.
        reason: String,
        /// Not before this has passed, if it said so.
        retry_after: Option<Duration>,
    },
    /// The deadline passed. The order goes on from where it is when retried with the same key.
    #[error("no answer in time while {stage}")]
    TimedOut {
        /// The stage that timed out.
        stage: &'static str,
    },
    /// We do not ask now: its circuit breaker is open, or our own limits for it are reached.
    #[error("the circuit breaker of the issuer is open after failures: {reason}")]
    Held {
        /// When we will ask again.
        retry_after: Duration,
        /// Why.
        reason: String,
    },
    /// The certificate does not match the request.
    #[error("the issuer's certificate does not match the request: {reason}")]
    Lying {
        /// The difference.
        reason: String,
    },
    /// It cannot do this at all.
    #[error("this issuer cannot {what}")]
    Unsupported {
        /// The unsupported operation.
        what: &'static str,
    },
    /// Its configuration does not work: a person must change it.
    #[error("the issuer's configuration does not work: {reason}")]
    Misconfigured {
        /// The error, and what to do.
        reason: String,
    },
    /// The database failed underneath; nothing is known about the issuer.
    #[error("the issuer's state cannot be read or kept: {reason}")]
    Storage {
        /// The store's words.
        reason: String,
    },
}

/// What to do after an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retry {
    /// The same order will fail again until a person changes something.
    Never,
    /// It may heal: try again with growing distance.
    Backoff,
    /// Try again, not before this has passed.
    After(Duration),
}

impl IssuerError {
    /// Whether and when the same order may be tried again.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Refused { .. }
            | Self::Lying { .. }
            | Self::Unsupported { .. }
            | Self::Misconfigured { .. } => Retry::Never,
            Self::RateLimited { retry_after, .. } | Self::Unavailable { retry_after, .. } => {
                retry_after.map_or(Retry::Backoff, Retry::After)
            }
            Self::Held { retry_after, .. } => Retry::After(*retry_after),
            Self::Unproven { .. } | Self::Denied { .. } | Self::TimedOut { .. } | Self::Storage { .. } => {
                Retry::Backoff
            }
        }
    }

    /// A word for metrics and filters.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::Unproven { .. } => "unproven",
            Self::Denied { .. } => "denied",
            Self::RateLimited { .. } => "rate_limited",
            Self::Unavailable { .. } => "unavailable",
            Self::TimedOut { .. } => "timed_out",
            Self::Held { .. } => "held",
            Self::Lying { .. } => "lying",
            Self::Unsupported { .. } => "unsupported",
            Self::Misconfigured { .. } => "misconfigured",
            Self::Storage { .. } => "storage",
        }
    }

    /// Whether it says that the issuer itself is ill, which is what the circuit breaker counts.
    #[must_use]
    pub(crate) fn is_illness(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::TimedOut { .. } | Self::Lying { .. })
    }

    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into(), retry_after: None }
    }

    pub(crate) fn misconfigured(reason: impl Into<String>) -> Self {
        Self::Misconfigured { reason: reason.into() }
    }
}

impl From<BadSecret> for IssuerError {
    fn from(error: BadSecret) -> Self {
        Self::misconfigured(error.to_string())
    }
}

impl From<HttpError> for IssuerError {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Misconfigured { reason } => Self::Misconfigured { reason },
            HttpError::Unavailable { reason } => Self::Unavailable { reason, retry_after: None },
            HttpError::TimedOut { stage } => Self::TimedOut { stage },
        }
    }
}

impl From<store::StoreError> for IssuerError {
    fn from(error: store::StoreError) -> Self {
        Self::Storage { reason: error.to_string() }
    }
}
