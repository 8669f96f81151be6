//! Several lookups in one request. CredHub has no such endpoint.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::credentials::CredentialView;

/// Lookups: `POST /api/v1/lookup`. Each lookup returns the first of its names that exists and that the caller may read.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LookupRequest<L = NameList> {
    /// One list of names for each lookup.
    pub lookups: Vec<L>,
}

/// Names in order of preference. A single name may be given without a list.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum NameList {
    /// A list of names.
    Many(Vec<String>),
    /// A single name.
    One(String),
}

impl NameList {
    /// Returns the names in order of preference.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        match self {
            Self::Many(names) => names,
            Self::One(name) => vec![name],
        }
    }
}

/// The results in the order of the lookups. A result is null if the lookup found nothing.
#[derive(Deserialize, Serialize)]
#[serde(bound(deserialize = "C: DeserializeOwned"))]
pub struct LookupView<C = CredentialView> {
    /// One result for each lookup, in the same order.
    pub results: Vec<Option<LookupOutcome<C>>>,
}

/// The result of one lookup.
#[derive(Serialize)]
#[serde(untagged)]
pub enum LookupOutcome<C = CredentialView> {
    /// The credential exists, but its value cannot be decrypted.
    Failed {
        /// Reason of the failure.
        error: String,
    },
    /// The current version of the credential.
    Found(C),
}

impl<'de, C: DeserializeOwned> Deserialize<'de> for LookupOutcome<C> {
    /// Deserializes from the text of the result, so that the credential can keep the text of its value. Serde's untagged enums
    /// would parse the text first.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Failed {
            error: String,
        }
        let text = Box::<RawValue>::deserialize(deserializer)?;
        if let Ok(Failed { error }) = serde_json::from_str(text.get()) {
            return Ok(Self::Failed { error });
        }
        serde_json::from_str(text.get()).map(Self::Found).map_err(D::Error::custom)
    }
}
