//! Why something about managed certificates was not done.

use std::fmt;
use std::sync::Arc;

use authority::keystore::KeyStoreError;
use issuers::IssuerError;
use store::StoreError;
use uuid::Uuid;

use crate::claim::BadClaim;
use crate::job::JobId;
use crate::managed::{BadRequest, Unreadable};
use crate::people::BadPerson;
use crate::policy::{BadPolicy, Violation};
use crate::state::Illegal;

/// Why something was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LifecycleError {
    /// No such certificate, run, approval, policy, owner or team.
    #[error("there is no {what} {id}")]
    NotFound {
        /// The noun.
        what: &'static str,
        /// As asked.
        id: String,
    },
    /// The request makes no sense by itself.
    #[error(transparent)]
    Bad(#[from] BadRequest),
    /// The policy cannot be kept.
    #[error(transparent)]
    BadPolicy(#[from] BadPolicy),
    /// The owner or team cannot be kept.
    #[error(transparent)]
    BadPerson(#[from] BadPerson),
    /// The name is taken.
    #[error("there is already {what} {name:?}")]
    Taken {
        /// The noun, with its article.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Something it names does not exist.
    #[error("there is no {what} {name:?}; make it first")]
    Missing {
        /// The noun.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Still named by something.
    #[error("{what} {name:?} is still used by the certificate {by}")]
    InUse {
        /// The noun.
        what: &'static str,
        /// The name.
        name: String,
        /// One user of it.
        by: Uuid,
    },
    /// Somebody changed it since it was read.
    #[error("it was changed meanwhile: read it again (its revision is now {revision})")]
    Stale {
        /// The revision now.
        revision: i64,
    },
    /// The state does not allow it.
    #[error(transparent)]
    Illegal(#[from] Illegal),
    /// A run is in the way.
    #[error("a run is under way ({job}): wait for it, or cancel it")]
    UnderWay {
        /// Which.
        job: JobId,
    },
    /// Enforced policies forbid it.
    #[error("policies forbid it: {}", list(.0))]
    Forbidden(Vec<Violation>),
    /// The one who decides is the one who asked.
    #[error("whoever asked for it ({0}) cannot approve it: a second person has to")]
    SamePerson(String),
    /// It was decided already, or is over.
    #[error("the approval is {0} already")]
    Decided(&'static str),
    /// There is nothing to give, or it may not be given.
    #[error("{0}")]
    NotExportable(&'static str),
    /// The CSR is not what was asked for.
    #[error("the CSR is refused: {0}")]
    BadCsr(String),
    /// The run does not wait for this.
    #[error("the run {job} is {state}, so it takes no such report")]
    NotWaiting {
        /// Which.
        job: JobId,
        /// How far it is.
        state: &'static str,
    },
    /// The issuer did not do it.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// Keys at rest.
    #[error(transparent)]
    Keys(#[from] KeyStoreError),
    /// The row is of another build.
    #[error("{0}")]
    Unreadable(String),
    /// The profile cannot be had.
    #[error("the profile {name:?} cannot be used: {reason}")]
    Profile {
        /// Which.
        name: String,
        /// Why.
        reason: String,
    },
    /// What was found cannot be claimed.
    #[error(transparent)]
    BadClaim(#[from] BadClaim),
    /// Those of the database.
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
    /// The work was given up: the process is going down.
    #[error("the server is stopping: try again")]
    Stopping,
}

fn list(all: &[Violation]) -> String {
    let texts: Vec<String> = all.iter().map(|one| format!("{} ({})", one.message, one.policy)).collect();
    texts.join("; ")
}

impl From<StoreError> for LifecycleError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl From<Unreadable> for LifecycleError {
    fn from(error: Unreadable) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl LifecycleError {
    pub(crate) fn not_found(what: &'static str, id: impl fmt::Display) -> Self {
        Self::NotFound { what, id: id.to_string() }
    }

    /// Whether the same call may succeed later without anybody changing it.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Stopping => true,
            _ => false,
        }
    }
}
