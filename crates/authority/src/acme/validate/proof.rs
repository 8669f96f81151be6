//! One try of a proof: the question, and its two results.

use crate::acme::identifier::Identifier;
use crate::acme::options::Method;
use crate::acme::problem::{Kind, Problem};

/// The identifier to prove, and the account that proves it.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// Without `*.`.
    pub(crate) identifier: Identifier,
    pub(crate) wildcard: bool,
    /// `None`: nothing, the profile trusts.
    pub(crate) method: Option<Method>,
    pub(crate) token: String,
    pub(crate) account_url: String,
    /// Of the account's keys: the present one, then earlier ones (which only `dns-persist-01` looks at).
    pub(crate) thumbprints: Vec<String>,
}

impl Question {
    /// RFC 8555 section 8.1.
    pub(crate) fn key_authorization(&self) -> String {
        format!("{}.{}", self.token, self.thumbprints.first().map_or("", String::as_str))
    }

    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self {
            identifier: Identifier::Dns(String::new()),
            wildcard: false,
            method: None,
            token: String::new(),
            account_url: String::new(),
            thumbprints: Vec::new(),
        }
    }
}

/// A proof.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proven {
    /// Observations for the audit log: addresses and answers.
    pub(crate) evidence: Vec<String>,
    /// Until when it may count, µs.
    pub(crate) until_us: Option<i64>,
}

impl Proven {
    pub(super) fn by(evidence: String) -> Self {
        Self { evidence: vec![evidence], until_us: None }
    }
}

/// No proof.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct Failure {
    pub(super) kind: Kind,
    pub(super) detail: String,
    /// Whether another try may go differently.
    pub(crate) passing: bool,
}

impl Failure {
    pub(super) fn passing(kind: Kind, detail: String) -> Self {
        Self { kind, detail, passing: true }
    }

    pub(super) fn for_good(kind: Kind, detail: String) -> Self {
        Self { kind, detail, passing: false }
    }

    pub(crate) fn problem(&self) -> Problem {
        Problem::new(self.kind, self.detail.clone())
    }
}
