//! The reason why a credential is not available.

/// Reason why a credential is not available. Contains no part of its value.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SecretUnavailable {
    /// The store does not respond. A retry is safe.
    #[error("the credential store does not answer: {0}")]
    StoreUnavailable(String),
    /// The credential does not exist, may not be read, or has an unexpected form.
    #[error("{0}")]
    Unusable(String),
}
