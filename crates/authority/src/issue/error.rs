//! Errors of issuance.

use std::sync::Arc;

use keys::SignError;
use store::StoreError;
use x509::SpkiHash;

use crate::names::NameRefusal;
use crate::profile::ProfileError;
use crate::profile::baseline::Violation;
use crate::teams::{OverQuota, OwnershipMismatch, QuotaError};
use crate::tree::CaError;

/// Reason why a certificate was not issued. Nothing was stored. Nothing was signed unless a variant says so.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IssueError {
    /// The profile does not exist or cannot be read.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The CA does not exist, or the request must name one of several CAs.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// This CA does not issue certificates. The caller must name another CA.
    #[error("the CA {0} issues no certificates: it is retiring, retired, expired or not yet valid")]
    NotIssuing(String),
    /// The key is not allowed. The caller must use another key.
    #[error("the public key is not accepted: {0}")]
    Key(String),
    /// The key is compromised or suspected to be. The caller must generate another key.
    #[error("the key {0} is blocked: no certificates are issued for it; generate a new key")]
    KeyBlocked(SpkiHash),
    /// Some names are not allowed. The caller must request other names.
    #[error("names not allowed: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Names(Vec<NameRefusal>),
    /// The subject is not allowed. The caller must request another subject.
    #[error("the subject is not allowed: {0}")]
    Subject(String),
    /// The dates are not allowed. The caller must request other dates.
    #[error("the dates are not allowed: {0}")]
    Dates(String),
    /// An extension is not allowed. The caller must omit it.
    #[error("the extension is not allowed: {0}")]
    Extension(String),
    /// The request violates the preset of the profile. The caller must correct the request.
    #[error("the Baseline Requirements do not allow the certificate: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Baseline(Vec<Violation>),
    /// The certificate would be faulty and clients would reject it. The operator must correct the profile.
    #[error("the certificate would be invalid: {}", .0.join("; "))]
    Lint(Vec<String>),
    /// A name belongs to another team. The caller must request names of its own team.
    #[error(transparent)]
    Team(#[from] OwnershipMismatch),
    /// The team has used its daily quota. The caller must repeat the request on another day.
    #[error(transparent)]
    Quota(#[from] OverQuota),
    /// The idempotency key was used for another request. The caller must use a new one.
    #[error("the idempotency key is already used for a different request")]
    KeyReused,
    /// The idempotency key is too long. The caller must shorten it.
    #[error("the idempotency key has {0} bytes; at most {max} are allowed", max = super::IDEMPOTENCY_KEY_MAX)]
    KeyTooLong(usize),
    /// Signing with the CA key failed.
    #[error("the CA key failed to sign: {0}")]
    Sign(#[from] SignError),
    /// The database queue stopped before it returned the result. Repeat the request with the same idempotency key.
    #[error("issuance was cancelled before it completed: try again")]
    Abandoned,
    /// An error of the database. If it is transient, repeat the request with the same idempotency key.
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
    /// Returns whether the request itself is rejected, so that only a different request can succeed.
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
