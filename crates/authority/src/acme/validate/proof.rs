//! Input and results of one validation attempt.

use crate::acme::identifier::Identifier;
use crate::acme::options::Method;
use crate::acme::problem::{Kind, Problem};

/// The identifier to validate, the method and the account.
#[derive(Clone, Debug)]
pub(crate) struct ValidationRequest {
    /// Identifier without `*.`.
    pub(crate) identifier: Identifier,
    pub(crate) wildcard: bool,
    /// Method; `None` if the profile requires no validation.
    pub(crate) method: Option<Method>,
    pub(crate) token: String,
    pub(crate) account_url: String,
    /// Thumbprints of the account's keys: the current one first, then earlier ones (used only by `dns-persist-01`).
    pub(crate) thumbprints: Vec<String>,
}

impl ValidationRequest {
    /// Returns the key authorization (RFC 8555 section 8.1).
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

/// A successful validation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proven {
    /// Observations for the audit log: addresses and responses.
    pub(crate) evidence: Vec<String>,
    /// Time in microseconds until which the proof is valid; `None` without such a limit. Only `dns-persist-01` records can set one.
    pub(crate) until_us: Option<i64>,
}

impl Proven {
    pub(super) fn by(evidence: String) -> Self {
        Self { evidence: vec![evidence], until_us: None }
    }
}

/// A failed validation.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct Failure {
    pub(super) kind: Kind,
    pub(super) detail: String,
    /// Whether a retry may succeed.
    pub(crate) transient: bool,
}

impl Failure {
    pub(super) fn transient(kind: Kind, detail: String) -> Self {
        Self { kind, detail, transient: true }
    }

    pub(super) fn permanent(kind: Kind, detail: String) -> Self {
        Self { kind, detail, transient: false }
    }

    pub(crate) fn problem(&self) -> Problem {
        Problem::new(self.kind, self.detail.clone())
    }
}
