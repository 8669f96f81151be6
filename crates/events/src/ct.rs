//! Event bodies about Certificate Transparency.

use serde::{Deserialize, Serialize};

/// An issuance for a watched domain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CtIssuance {
    /// The watched domain; `None` when it is no longer watched.
    pub name: Option<String>,
    /// Name of the CA that issued the certificate.
    pub issuer: String,
    /// Serial number in hexadecimal. Empty when it cannot be parsed.
    pub serial: String,
    /// The first names of the certificate, at most 10.
    pub names: Vec<String>,
    /// Log or search service in which the certificate was found first.
    pub source: String,
    /// Names and verdict as human-readable text.
    pub detail: String,
}

/// A person decided about a CT issuance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CtIssuanceDecision {
    /// Reason that the person gave.
    pub detail: String,
}

/// An issuance is expected: it matches a known request, or a person marked it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CtIssuanceExpected {
    /// The issuance is now known, for example because a certificate request that matches it was found, or its domain is no longer
    /// watched.
    Known(CtIssuance),
    /// A person marked the issuance as expected.
    Decided(CtIssuanceDecision),
}

/// Inconsistency of a CT log, such as a fork or a rollback.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CtLogAlarm {
    /// The log signed two contradicting trees.
    Forked,
    /// A later checkpoint has fewer entries than an earlier one.
    RolledBack,
    /// A tile does not match the checkpoint.
    WrongTile,
    /// The checkpoint is not from this log.
    BadCheckpoint,
}

/// A CT log forked, rolled back, or serves entries that it did not sign.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CtLogInconsistent {
    /// The log's description.
    pub name: String,
    /// Name of the organization that operates the log.
    pub operator: String,
    /// Kind of the inconsistency, such as a fork or a rollback.
    pub alarm: CtLogAlarm,
    /// The inconsistency as human-readable text.
    pub detail: String,
}

/// A CT log no longer has an alarm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CtLogConsistent {
    /// A later check of the log was consistent.
    Recovered(CtLogRecovered),
    /// An operator reset the stored position of the log.
    Forgotten(CtForgotten),
}

/// A CT log is consistent again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CtLogRecovered {
    /// The log's description.
    pub name: String,
    /// Name of the organization that operates the log.
    pub operator: String,
    /// Always `None`. The body has the same members as [`CtLogInconsistent`].
    pub alarm: Option<CtLogAlarm>,
    /// Always `None`, like `alarm`.
    pub detail: Option<String>,
}

/// An operator reset the stored position of a log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CtForgotten {}

/// A CT search service or log failed, fell behind, or caught up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CtLag {
    /// Name of the search service, or description of the log.
    pub name: String,
    /// Human-readable description of the failure.
    pub detail: String,
}

/// A CT search service or log is no longer behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CtLagEnded {
    /// The log caught up.
    CaughtUp(CtLag),
    /// An operator reset the stored position of the log.
    Forgotten(CtForgotten),
}
