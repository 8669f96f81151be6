//! Why something was refused, in CredHub's words where its clients compare them.

use std::sync::Arc;

use store::StoreError;

/// Whose fault a refusal is, for anyone who turns it into a status.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// The request is wrong.
    Bad,
    /// It is not there, or the caller may not know that it is.
    Absent,
    /// The caller may not.
    Forbidden,
    /// Something else is there already.
    Conflict,
    /// It was there and is gone.
    Gone,
    /// More bytes than are kept.
    TooLarge,
    /// Not the caller's fault.
    Internal,
    /// Not now: the database is away.
    Unavailable,
    /// The disk of the database is full.
    Full,
}

/// Why nothing was done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CredentialError {
    /// The request is wrong, in words for anyone who made it.
    #[error("{0}")]
    Bad(String),
    /// No such credential, or no permission to know of it.
    #[error(
        "The request could not be completed because the credential does not exist or you do not have sufficient \
         authorization."
    )]
    NotFound,
    /// No such authority, or no permission to know of it.
    #[error(
        "The request could not be completed because the CA does not exist or you do not have sufficient authorization."
    )]
    NoCa,
    /// No permission to write there.
    #[error(
        "The request could not be completed because the credential does not exist or you do not have sufficient \
         authorization."
    )]
    Forbidden,
    /// No such version of that credential.
    #[error(
        "The request could not be completed because the specified version does not exist or does not belong to the \
         specified credential."
    )]
    NoVersion,
    /// The name has another type.
    #[error(
        "The credential type cannot be modified. Please delete the credential if you wish to create it with a \
         different type."
    )]
    OtherType,
    /// The newest version is another than the caller expected.
    #[error("The credential was changed by somebody else. Read it and try again.")]
    Changed,
    /// The value has too many bytes.
    #[error("Value exceeds the maximum size.")]
    TooLarge,
    /// No such permission, or none to know of it.
    #[error(
        "The request could not be completed because the permission does not exist or you do not have sufficient \
         authorization."
    )]
    NoPermission,
    /// The permission to be changed is not there.
    #[error("The request includes a permission that does not exist.")]
    UnknownPermission,
    /// Actor and path have a permission already.
    #[error(
        "A permission entry for this actor and path already exists. Please use PUT to update the permission entry."
    )]
    PermissionExists,
    /// Actors cannot change their own permissions.
    #[error(
        "Modification of access control for the authenticated user is not allowed. Please contact an administrator."
    )]
    OwnPermission,
    /// A token that was good for one reading, and is used again.
    #[error(
        "This token was read at {at} by {by}. If that was not whom it was for, somebody else has the value of {name}: \
         make it anew."
    )]
    AlreadyRead {
        /// Whose value.
        name: String,
        /// When, RFC 3339.
        at: String,
        /// Who, as the log names them.
        by: String,
    },
    /// No token that was good for one reading, or one that has ended.
    #[error("The token does not exist, or it expired before it was read.")]
    NoToken,
    /// The value of this credential does not open; others are unaffected.
    #[error(
        "The credential could not be accessed with the provided encryption keys. You must update your deployment \
         configuration to continue."
    )]
    Sealed {
        /// Whose value.
        name: String,
        /// Why, for the log.
        why: String,
    },
    /// Keys, randomness: not the caller's fault.
    #[error("An application error occurred. Please contact your CredHub administrator.")]
    Internal(String),
    /// The audit log was not written, and no secret is answered without a record of it.
    #[error(
        "The audit log cannot be written, so the value is not answered. Please try again; if it stays so, see the server's log."
    )]
    Unlogged(Arc<StoreError>),
    /// Nothing can be written; the disk is named.
    #[error("Nothing can be written: {0}. Please free space on that disk, or ask an administrator to.")]
    Full(Arc<StoreError>),
    /// The database.
    #[error("The database does not answer. Please try again.")]
    Store(Arc<StoreError>),
}

impl CredentialError {
    /// A wrong request.
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self::Bad(text.into())
    }

    /// The class of the error: caller, conflict, or server.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Bad(_) | Self::OtherType | Self::OwnPermission => Refusal::Bad,
            Self::NotFound
            | Self::NoCa
            | Self::NoVersion
            | Self::NoPermission
            | Self::UnknownPermission
            | Self::NoToken => Refusal::Absent,
            Self::AlreadyRead { .. } => Refusal::Gone,
            Self::Forbidden => Refusal::Forbidden,
            Self::PermissionExists | Self::Changed => Refusal::Conflict,
            Self::TooLarge => Refusal::TooLarge,
            Self::Sealed { .. } | Self::Internal(_) => Refusal::Internal,
            Self::Full(_) => Refusal::Full,
            Self::Unlogged(error) if matches!(**error, StoreError::Full { .. }) => Refusal::Full,
            Self::Store(_) | Self::Unlogged(_) => Refusal::Unavailable,
        }
    }

    /// What the log shall say beyond what the caller is told; `None` when the caller is told all.
    #[must_use]
    pub fn details(&self) -> Option<String> {
        match self {
            Self::Sealed { name, why } => Some(format!("the value of {name} does not open: {why}")),
            Self::Internal(why) => Some(why.clone()),
            Self::Unlogged(error) => Some(format!(
                "a read is refused, as the audit log is not written: {}",
                telemetry::chain(&**error)
            )),
            Self::Full(error) | Self::Store(error) => Some(telemetry::chain(&**error)),
            _ => None,
        }
    }
}

impl From<StoreError> for CredentialError {
    fn from(error: StoreError) -> Self {
        Arc::new(error).into()
    }
}

impl From<Arc<StoreError>> for CredentialError {
    fn from(error: Arc<StoreError>) -> Self {
        match *error {
            StoreError::Full { .. } => Self::Full(error),
            _ => Self::Store(error),
        }
    }
}

impl From<keys::KeyError> for CredentialError {
    fn from(error: keys::KeyError) -> Self {
        Self::Internal(error.to_string())
    }
}

impl From<keys::SignError> for CredentialError {
    fn from(error: keys::SignError) -> Self {
        Self::Internal(error.to_string())
    }
}
