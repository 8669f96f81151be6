//! Errors that several operations share. Errors of a single operation are defined next to it.

use std::fmt;
use std::sync::Arc;

use store::StoreError;
use uuid::Uuid;

use crate::job::JobId;
use crate::managed::Unreadable;

/// Error for stored data about managed certificates that is missing or cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DataError {
    /// The certificate, run, approval, policy, owner or team does not exist.
    #[error("unknown {what} {id}")]
    NotFound {
        /// Noun for the object, such as `certificate`.
        what: &'static str,
        /// The id in the request.
        id: String,
    },
    /// The database row was written by another version of this program.
    #[error("{0}")]
    Unreadable(String),
    /// The profile cannot be read.
    #[error("the profile {name:?} cannot be used: {reason}")]
    Profile {
        /// Name of the profile.
        name: String,
        /// Description of the fault in the profile.
        reason: String,
    },
    /// The database failed.
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
}

impl From<StoreError> for DataError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl From<Unreadable> for DataError {
    fn from(error: Unreadable) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl DataError {
    pub(crate) fn not_found(what: &'static str, id: impl fmt::Display) -> Self {
        Self::NotFound { what, id: id.to_string() }
    }

    /// Returns whether a retry of the same call may succeed.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_transient())
    }
}

/// Converts database errors into the variant `Data` of an operation's error, for `?`.
macro_rules! from_data {
    ($($error:ty),*) => { $(
        impl From<store::StoreError> for $error {
            fn from(error: store::StoreError) -> Self {
                Self::Data(error.into())
            }
        }

        impl From<$crate::managed::Unreadable> for $error {
            fn from(error: $crate::managed::Unreadable) -> Self {
                Self::Data(error.into())
            }
        }
    )* };
}
pub(crate) use from_data;

/// Error for a name that is already in use.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there is already {what} {name:?}")]
pub struct NameTaken {
    /// Noun for the object, with its article.
    pub what: &'static str,
    /// The name that is in use.
    pub name: String,
}

/// Error for a request that names an object that does not exist.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("unknown {what} {name:?}; create it first")]
pub struct Missing {
    /// Noun for the object.
    pub what: &'static str,
    /// The name that was not found.
    pub name: String,
}

/// Error for a change that is based on an old revision of the object.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("another request changed the object: read it again (its revision is now {revision})")]
pub struct Stale {
    /// Current revision of the object.
    pub revision: i64,
}

/// Error for an operation that a run in progress prevents.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a run is in progress ({job}): wait for it, or cancel it")]
pub struct UnderWay {
    /// Id of the run in progress.
    pub job: JobId,
}

/// Error for an action that the state of the run does not permit.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the run {job} is in the state {state}, which does not allow this request")]
pub struct NotWaiting {
    /// Id of the run.
    pub job: JobId,
    /// State of the run, such as queued, running or waiting for approval.
    pub state: &'static str,
}

/// Reason why the policy, owner or team was not removed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoveError {
    /// The object is still in use.
    #[error("{what} {name:?} is still used by the certificate {by}")]
    InUse {
        /// Noun for the object.
        what: &'static str,
        /// Name of the object.
        name: String,
        /// Id of a certificate that still uses the object.
        by: Uuid,
    },
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(RemoveError);
