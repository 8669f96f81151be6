//! Errors of the credential store client.

/// The reason why a credential is not available. Cheap to clone, because all waiting callers get it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// The store, its database or the network failed, and the cache has no usable value. Retrying is safe.
    #[error("the credential store cannot be reached: {0}")]
    Unavailable(String),
    /// The login was refused. Retrying does not help.
    #[error("the credential store denied access: {0}")]
    Denied(String),
    /// The store rejected the request.
    #[error("the credential store refused the request ({status}): {text}")]
    Refused {
        /// HTTP status of the store's response.
        status: u16,
        /// Error message in the store's response.
        text: String,
    },
    /// The credential does not exist, or this client may not read it. The store does not distinguish the two cases.
    #[error("the credential {0} does not exist, or this client may not read it")]
    NotFound(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Returns whether the error may be temporary. In this case cached values are served.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::Denied(_) | Self::Refused { .. } | Self::NotFound(_) | Self::Invalid(_) => false,
        }
    }

    pub(crate) fn invalid(text: impl std::fmt::Display) -> Self {
        Self::Invalid(text.to_string())
    }
}
