//! Errors that several operations share. Each operation has a small error of its own beside it.

use std::fmt;
use std::sync::Arc;

use store::StoreError;
use uuid::Uuid;

use crate::job::JobId;
use crate::managed::Unreadable;

/// An error in stored data about managed certificates.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DataError {
    /// No such certificate, run, approval, policy, owner or team.
    #[error("there is no {what} {id}")]
    NotFound {
        /// The noun.
        what: &'static str,
        /// The id of the request.
        id: String,
    },
    /// The row is of another build.
    #[error("{0}")]
    Unreadable(String),
    /// The profile cannot be read.
    #[error("the profile {name:?} cannot be used: {reason}")]
    Profile {
        /// Which.
        name: String,
        /// Why.
        reason: String,
    },
    /// An error of the database.
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

    /// Whether the same call may succeed later without anybody changing it.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_transient())
    }
}

/// Lets `?` turn what the database says into the variant `Data` of an operation's error.
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

/// The name is taken.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there is already {what} {name:?}")]
pub struct NameTaken {
    /// The noun, with its article.
    pub what: &'static str,
    /// The name.
    pub name: String,
}

/// Something that is named does not exist.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there is no {what} {name:?}; make it first")]
pub struct Missing {
    /// The noun.
    pub what: &'static str,
    /// The name.
    pub name: String,
}

/// The object was changed since the caller read it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("another request changed the object: read it again (its revision is now {revision})")]
pub struct Stale {
    /// The revision now.
    pub revision: i64,
}

/// A run is in the way.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a run is under way ({job}): wait for it, or cancel it")]
pub struct UnderWay {
    /// Which.
    pub job: JobId,
}

/// The run does not wait for this.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the run {job} is {state}, so this report does not apply")]
pub struct NotWaiting {
    /// Which.
    pub job: JobId,
    /// The state.
    pub state: &'static str,
}

/// Why a policy, an owner or a team was not removed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoveError {
    /// Still named by something.
    #[error("{what} {name:?} is still used by the certificate {by}")]
    InUse {
        /// The noun.
        what: &'static str,
        /// The name.
        name: String,
        /// One object that uses it.
        by: Uuid,
    },
    /// An error in stored data.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(RemoveError);
