//! Many lookups in one request: not in CredHub.

use serde::{Deserialize, Serialize};

use super::credentials::CredentialView;

/// Lookups: `POST /api/v1/lookup`. Each finds the first of its names at which the caller may read something.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LookupRequest<L = NameList> {
    /// The lists of names.
    pub lookups: Vec<L>,
}

/// Names in their order; one may be written without its list.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum NameList {
    /// A list.
    Many(Vec<String>),
    /// One name.
    One(String),
}

impl NameList {
    /// The names.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        match self {
            Self::Many(names) => names,
            Self::One(name) => vec![name],
        }
    }
}

/// What was found, in the order of the lookups; null where there is nothing.
#[derive(Deserialize, Serialize)]
pub struct LookupView<C = CredentialView> {
    /// The results.
    pub results: Vec<Option<LookupOutcome<C>>>,
}

/// The result of one lookup.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
pub enum LookupOutcome<C = CredentialView> {
    /// Something is there and cannot be opened.
    Failed {
        /// Why, in a sentence.
        error: String,
    },
    /// The current version.
    Found(C),
}
