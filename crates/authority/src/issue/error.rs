//! Why a certificate was not issued.

use std::sync::Arc;

use keys::SignError;
use store::StoreError;
use x509::SpkiHash;

use crate::names::NameRefusal;
use crate::profile::ProfileError;
use crate::profile::baseline::Violation;
use crate::teams::{Crossing, OverQuota, QuotaError};
use crate::tree::CaError;

/// Why a certificate was not issued. Nothing was signed unless it says so, and nothing was stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IssueError {
    /// The profile is not there, or cannot be read.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The CA is not there, or none was named where several would do.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// Caller: name another CA.
    #[error("{0} does not issue: it is retiring, retired or out of its dates")]
    NotIssuing(String),
    /// Caller: use another key.
    #[error("the key is not certified: {0}")]
    Key(String),
    /// Caller: make another key. This one is known or thought to be compromised.
    #[error("the key {0} is blocked: nothing is issued for it any more; make a new one")]
    KeyBlocked(SpkiHash),
    /// Caller: ask for other names.
    #[error("names not allowed: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Names(Vec<NameRefusal>),
    /// Caller: ask for another subject.
    #[error("the subject is not allowed: {0}")]
    Subject(String),
    /// Caller: ask for other dates.
    #[error("the dates are not allowed: {0}")]
    Dates(String),
    /// Caller: leave the extension out.
    #[error("the extension is not allowed: {0}")]
    Extension(String),
    /// Caller: ask for what the preset allows.
    #[error("the baseline requirements forbid it: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Baseline(Vec<Violation>),
    /// Operator: correct the profile; it would make certificates that clients do not take.
    #[error("the certificate would be faulty: {}", .0.join("; "))]
    Lint(Vec<String>),
    /// Caller: request names of the own team.
    #[error(transparent)]
    Team(#[from] Crossing),
    /// Caller: ask again on another day.
    #[error(transparent)]
    Quota(#[from] OverQuota),
    /// Caller: use another key for another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// Caller: shorten the text.
    #[error("the idempotency key has {0} bytes, at most {max} are permitted", max = super::IDEMPOTENCY_KEY_MAX)]
    KeyTooLong(usize),
    /// The CA's key did not sign.
    #[error("the key of the authority: {0}")]
    Sign(#[from] SignError),
    /// Try again, with the same idempotency key.
    #[error("the work was given up before it was done: try again")]
    Abandoned,
    /// Those of the database. Try again when it is transient, with the same idempotency key.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

impl From<StoreError> for IssueError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl From<QuotaError> for IssueError {
    fn from(error: QuotaError) -> Self {
        match error {
            QuotaError::Over(over) => Self::Quota(over),
            QuotaError::Store(error) => Self::Store(error),
        }
    }
}

impl IssueError {
    /// Whether the request itself is refused, so that only another one can succeed.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Profile(error) => matches!(error, ProfileError::Unknown(_)),
            Self::Ca(error) => !matches!(error, CaError::Store(_)),
            Self::Sign(_) | Self::Abandoned | Self::Store(_) | Self::Quota(_) => false,
            Self::NotIssuing(_)
            | Self::Key(_)
            | Self::KeyBlocked(_)
            | Self::Names(_)
            | Self::Subject(_)
            | Self::Dates(_)
            | Self::Extension(_)
            | Self::Baseline(_)
            | Self::Lint(_)
            | Self::Team(_)
            | Self::KeyReused
            | Self::KeyTooLong(_) => true,
        }
    }
}
