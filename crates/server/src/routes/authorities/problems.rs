//! Conversion of CA errors to problem documents.

use authority::issue::IssueError;
use authority::keystore::KeyStoreError;
use authority::revoke::RevokeError;
use authority::tree::{CaError, DefaultError, ImportError, NewCaError, RetireError};
use http::StatusCode;
use keys::SignError;
use serde_json::{Value, json};
use store::StoreError;

use crate::problem::Problem;

/// `Retry-After` in seconds when the database was busy or unavailable.
const STORE_RETRY_SECONDS: u64 = 2;
/// `Retry-After` in seconds when a key was unavailable: an HSM restarts more slowly than a database.
const KEY_RETRY_SECONDS: u64 = 10;

fn store(error: &StoreError) -> Problem {
    Problem::of_store(error)
}

fn taken(error: impl std::fmt::Display) -> Problem {
    Problem::conflict(error)
}

impl From<CaError> for Problem {
    fn from(error: CaError) -> Self {
        match error {
            CaError::Unknown(name) => Self::not_found(format_args!("certification authority {name}")),
            CaError::NoneIssues => Self::unprocessable(error),
            CaError::Store(error) => store(&error),
        }
    }
}

impl From<NewCaError> for Problem {
    fn from(error: NewCaError) -> Self {
        match error {
            NewCaError::NameTaken(_) | NewCaError::NotIssuing(_) | NewCaError::Expired(_) => taken(error),
            NewCaError::Ca(error) => error.into(),
            NewCaError::Store(error) => store(&error),
            NewCaError::Sign(SignError::Failed(_)) => Self::unprocessable(error),
            NewCaError::Sign(_) | NewCaError::Key(KeyStoreError::Provider { .. }) => {
                Self::unavailable(error, KEY_RETRY_SECONDS)
            }
            NewCaError::Key(KeyStoreError::NoProvider(_)) => Self::unprocessable(error)
                .hint("omit key_provider to store the key in the database, encrypted"),
            NewCaError::Key(_) | NewCaError::Unverified(_) => Self::internal(error),
            error => Self::unprocessable(error),
        }
    }
}

impl From<ImportError> for Problem {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::NameTaken(_) => taken(error),
            ImportError::NotPending(id) => {
                Self::not_found(format_args!("CA {id} that waits for a certificate"))
            }
            ImportError::Ca(error) => error.into(),
            ImportError::Store(error) => store(&error),
            error => Self::unprocessable(error),
        }
    }
}

impl From<DefaultError> for Problem {
    fn from(error: DefaultError) -> Self {
        match error {
            DefaultError::Ca(error) => error.into(),
            DefaultError::Store(error) => store(&error),
            error @ DefaultError::NotIssuing(_) => taken(error),
        }
    }
}

impl From<RetireError> for Problem {
    fn from(error: RetireError) -> Self {
        match error {
            RetireError::Ca(error) => error.into(),
            RetireError::Profile(error) => error.into(),
            RetireError::Store(error) => store(&error),
            error => taken(error),
        }
    }
}

/// Converts an error to a problem, with the kind and the object of the error in separate members.
pub(super) fn refused(error: IssueError) -> Problem {
    let unprocessable = |kind: &'static str, error: &dyn std::fmt::Display| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, kind, "The certificate cannot be issued").detail(error)
    };
    match error {
        IssueError::Profile(error) => error.into(),
        IssueError::Ca(error) => error.into(),
        IssueError::NotIssuing(_) => taken(error),
        IssueError::Store(error) => store(&error),
        IssueError::Abandoned => Problem::unavailable(error, STORE_RETRY_SECONDS),
        IssueError::Sign(SignError::Failed(_)) => {
            tracing::error!(%error, "signing with a CA key failed");
            unprocessable("signature-refused", &error)
        }
        IssueError::Sign(_) => {
            tracing::error!(%error, "signing with a CA key failed");
            Problem::unavailable(&error, KEY_RETRY_SECONDS)
        }
        IssueError::Names(ref refusals) => {
            let list: Vec<Value> = refusals
                .iter()
                .map(|refusal| json!({ "name": refusal.name.as_ref().map(ToString::to_string), "reason": refusal.reason }))
                .collect();
            unprocessable("names-not-allowed", &error).with("names", list)
        }
        IssueError::Baseline(ref violations) => {
            let list: Vec<Value> =
                violations.iter().map(|v| json!({ "section": v.section, "text": v.text })).collect();
            unprocessable("baseline-requirements", &error).with("violations", list)
        }
        IssueError::KeyBlocked(_) => unprocessable("key-blocked", &error),
        IssueError::Team(crossing) => Problem::forbidden(crossing)
            .hint("only callers of the same team can use objects of a team: see docs/teams.md"),
        IssueError::Quota(ref over) => Problem::too_many(over.retry_after.as_secs().max(1)).detail(&error),
        IssueError::Key(_) => unprocessable("key-not-allowed", &error),
        IssueError::Subject(_) => unprocessable("subject-not-allowed", &error),
        IssueError::Dates(_) => unprocessable("dates-not-allowed", &error),
        IssueError::Extension(_) => unprocessable("extension-not-allowed", &error),
        IssueError::Lint(_) => unprocessable("faulty-certificate", &error),
        IssueError::KeyReused | IssueError::KeyTooLong(_) => Problem::unprocessable(error),
    }
}

impl From<RevokeError> for Problem {
    fn from(error: RevokeError) -> Self {
        match error {
            RevokeError::Unknown => Self::not_found("such certificate: this server did not issue it"),
            RevokeError::Store(error) => store(&error),
            error => Self::unprocessable(error),
        }
    }
}
