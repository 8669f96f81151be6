//! Why there is no answer.

/// Why a credential could not be had. Cheap to clone: all who waited get it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// The store, its database or the way to it; nothing is remembered that could be answered instead. Safe to ask again.
    #[error("the credential store cannot be reached: {0}")]
    Unavailable(String),
    /// The login was refused. Asking again does not help.
    #[error("the credential store does not let this client in: {0}")]
    Denied(String),
    /// The store understood and refused.
    #[error("the credential store refused ({status}): {text}")]
    Refused {
        /// HTTP's.
        status: u16,
        /// Its sentence.
        text: String,
    },
    /// Nothing is there, or this client may not read it: the store does not tell the two apart.
    #[error("there is no credential {0} that this client may read")]
    NotFound(String),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// Whether it may be different in a moment: then what is remembered is answered instead.
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
