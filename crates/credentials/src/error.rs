//! Errors of the credential store. Some texts are the same as in CredHub, because CredHub clients compare them.

use std::sync::Arc;

use store::StoreError;

/// Class of an error, from which callers derive an HTTP status.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// The request is invalid.
    Bad,
    /// The object does not exist, or is hidden from the caller.
    Absent,
    /// The caller lacks the permission.
    Forbidden,
    /// The request conflicts with an existing object.
    Conflict,
    /// The object existed, but was already used: a single-use token.
    Gone,
    /// The value exceeds the size limit.
    TooLarge,
    /// The server failed, for example because a value could not be decrypted.
    Internal,
    /// A database is temporarily unavailable: the server's own, or the target of a dynamic credential.
    Unavailable,
    /// The disk of the database is full.
    Full,
}

/// Reason why an operation on credentials failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CredentialError {
    /// The request is invalid; the text is for the caller.
    #[error("{0}")]
    Bad(String),
    /// The credential does not exist, or is hidden from the caller.
    #[error(
        "The request could not be completed because the credential does not exist or you do not have sufficient \
         authorization."
    )]
    NotFound,
    /// The CA does not exist, or is hidden from the caller.
    #[error(
        "The request could not be completed because the CA does not exist or you do not have sufficient authorization."
    )]
    NoCa,
    /// The caller lacks the permission for the operation, such as to write this name or to configure databases.
    #[error(
        "The request could not be completed because the credential does not exist or you do not have sufficient \
         authorization."
    )]
    Forbidden,
    /// The credential has no such version.
    #[error(
        "The request could not be completed because the specified version does not exist or does not belong to the \
         specified credential."
    )]
    NoVersion,
    /// The existing credential has another type.
    #[error(
        "The credential type cannot be modified. Please delete the credential if you wish to create it with a \
         different type."
    )]
    OtherType,
    /// The newest version is not the one that the caller expected.
    #[error("The credential was changed by another request. Read it again and retry.")]
    Changed,
    /// The value exceeds the size limit.
    #[error("Value exceeds the maximum size.")]
    TooLarge,
    /// The permission does not exist, or is hidden from the caller.
    #[error(
        "The request could not be completed because the permission does not exist or you do not have sufficient \
         authorization."
    )]
    NoPermission,
    /// The permission to be changed does not exist.
    #[error("The request includes a permission that does not exist.")]
    UnknownPermission,
    /// A permission for this actor and path already exists.
    #[error(
        "A permission entry for this actor and path already exists. Please use PUT to update the permission entry."
    )]
    PermissionExists,
    /// Actors cannot change their own permissions.
    #[error(
        "Modification of access control for the authenticated user is not allowed. Please contact an administrator."
    )]
    OwnPermission,
    /// The single-use token was used before.
    #[error(
        "This token was read at {at} by {by}. If that was not the intended recipient, the value of {name} is compromised: \
         regenerate it."
    )]
    AlreadyRead {
        /// Name of the credential.
        name: String,
        /// Time of the first use, RFC 3339.
        at: String,
        /// Actor of the first use, as named in the audit log.
        by: String,
    },
    /// The single-use token does not exist or has expired.
    #[error("The token does not exist, or it expired before it was read.")]
    NoToken,
    /// The value of this credential cannot be decrypted; other credentials are unaffected.
    #[error(
        "The credential could not be accessed with the provided encryption keys. You must update your deployment \
         configuration to continue."
    )]
    Sealed {
        /// Name of the credential.
        name: String,
        /// Reason of the failed decryption. Only for the log.
        why: String,
    },
    /// The role does not exist, or is hidden from the caller.
    #[error("There is no role of this name, or you may not read its credentials.")]
    NoRole,
    /// The lease does not exist, or is hidden from the caller.
    #[error("There is no such lease, or it is not yours. It may have expired.")]
    NoLease,
    /// The database of a dynamic credential failed. The text is for the caller.
    #[error("The credential cannot be created or renewed at the database: {0}")]
    Remote(String),
    /// An internal error, such as a failure of keys or randomness.
    #[error("An application error occurred. Please contact your CredHub administrator.")]
    Internal(String),
    /// The audit log cannot be written. A secret is returned only after its read is logged, so no secret is returned.
    #[error(
        "The audit log cannot be written, so the value is not returned. Please try again; if the error persists, check the \
         server's log."
    )]
    Unlogged(Arc<StoreError>),
    /// The disk is full, so that nothing can be written. The error names the disk.
    #[error(
        "The database cannot be written: {0}. Please free space on that disk, or ask an administrator to do so."
    )]
    Full(Arc<StoreError>),
    /// The database failed.
    #[error("The database does not answer. Please try again.")]
    Store(Arc<StoreError>),
}

impl CredentialError {
    /// Creates an error for an invalid request.
    pub(crate) fn bad(text: impl Into<String>) -> Self {
        Self::Bad(text.into())
    }

    /// Returns the class of the error.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Bad(_) | Self::OtherType | Self::OwnPermission => Refusal::Bad,
            Self::NotFound
            | Self::NoCa
            | Self::NoVersion
            | Self::NoPermission
            | Self::UnknownPermission
            | Self::NoToken
            | Self::NoRole
            | Self::NoLease => Refusal::Absent,
            Self::AlreadyRead { .. } => Refusal::Gone,
            Self::Forbidden => Refusal::Forbidden,
            Self::PermissionExists | Self::Changed => Refusal::Conflict,
            Self::TooLarge => Refusal::TooLarge,
            Self::Sealed { .. } | Self::Internal(_) => Refusal::Internal,
            Self::Full(_) => Refusal::Full,
            Self::Unlogged(error) if matches!(**error, StoreError::Full { .. }) => Refusal::Full,
            Self::Store(_) | Self::Unlogged(_) | Self::Remote(_) => Refusal::Unavailable,
        }
    }

    /// Returns details for the log, which are hidden from the caller; `None` when the caller's message is complete.
    #[must_use]
    pub fn details(&self) -> Option<String> {
        match self {
            Self::Sealed { name, why } => Some(format!("the value of {name} cannot be decrypted: {why}")),
            Self::Internal(why) => Some(why.clone()),
            Self::Unlogged(error) => Some(format!(
                "a read was rejected because the audit log cannot be written: {}",
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
