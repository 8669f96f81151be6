//! Errors of issuers, and whether and when to retry after them.

use std::time::Duration;

use callout::HttpError;

use crate::secrets::BadSecret;

/// Reason why an issuer returned no certificate. The texts are human-readable and contain no secrets.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum IssuerError {
    /// The issuer rejects the request: because of a name, the key, or its policy.
    #[error("the issuer rejected the request: {reason}")]
    Refused {
        /// Error message of the issuer.
        reason: String,
    },
    /// The issuer could not validate the control over a name.
    #[error("validation of {name} failed: {reason}")]
    Unproven {
        /// The name that was not validated.
        name: String,
        /// Reason from the issuer or from Bulla's own check.
        reason: String,
    },
    /// The issuer rejects the credentials, or they lack a permission.
    #[error("the issuer does not accept the configured credentials: {reason}")]
    Denied {
        /// Error message of the issuer.
        reason: String,
    },
    /// The issuer's rate limit is reached. The issuer itself works.
    #[error("the issuer's rate limit is reached: {reason}")]
    RateLimited {
        /// Minimum wait, if the issuer sent one.
        retry_after: Option<Duration>,
        /// Error message of the issuer.
        reason: String,
    },
    /// The issuer is unreachable, fails, or sends an invalid response.
    #[error("the issuer is unavailable: {reason}")]
    Unavailable {
        /// The error of the connection or the response.
        reason: String,
        /// Minimum wait, if the issuer sent one.
        retry_after: Option<Duration>,
    },
    /// The deadline passed. A retry with the same key continues the order.
    #[error("timed out while {stage}")]
    TimedOut {
        /// The stage that timed out.
        stage: &'static str,
    },
    /// The order was not sent: the circuit breaker is open, or Bulla's own limits are reached.
    #[error("the circuit breaker of the issuer is open after failures: {reason}")]
    Deferred {
        /// Minimum wait before a retry.
        retry_after: Duration,
        /// Reason that the order was not sent.
        reason: String,
    },
    /// The certificate does not match the request.
    #[error("the issuer returned a certificate that does not match the request: {reason}")]
    Lying {
        /// Difference between the request and the certificate.
        reason: String,
    },
    /// The issuer does not support the operation.
    #[error("this issuer cannot {what}")]
    Unsupported {
        /// The unsupported operation.
        what: &'static str,
    },
    /// The configuration is invalid: a person must change it.
    #[error("the issuer's configuration is invalid: {reason}")]
    Misconfigured {
        /// The error, and how to correct the configuration.
        reason: String,
    },
    /// The database failed. The issuer was not involved.
    #[error("the issuer's state cannot be read or stored: {reason}")]
    Storage {
        /// Text of the store's error.
        reason: String,
    },
}

/// Whether and when to retry after an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Retry {
    /// The same order fails again until a person changes something.
    Never,
    /// A retry may succeed: use exponential backoff.
    Backoff,
    /// Retry after this time or later.
    After(Duration),
}

impl IssuerError {
    /// Returns whether and when the same order may be retried.
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
            Self::Deferred { retry_after, .. } => Retry::After(*retry_after),
            Self::Unproven { .. } | Self::Denied { .. } | Self::TimedOut { .. } | Self::Storage { .. } => {
                Retry::Backoff
            }
        }
    }

    /// Returns a stable name for metrics and filters.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::Unproven { .. } => "unproven",
            Self::Denied { .. } => "denied",
            Self::RateLimited { .. } => "rate_limited",
            Self::Unavailable { .. } => "unavailable",
            Self::TimedOut { .. } => "timed_out",
            Self::Deferred { .. } => "held",
            Self::Lying { .. } => "lying",
            Self::Unsupported { .. } => "unsupported",
            Self::Misconfigured { .. } => "misconfigured",
            Self::Storage { .. } => "storage",
        }
    }

    /// Returns whether the error counts as a failure for the circuit breaker.
    #[must_use]
    pub(crate) fn is_breaker_failure(&self) -> bool {
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
