//! Bodies about Certificate Transparency.

use serde::{Deserialize, Serialize};

/// An issuance for a watched domain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CtIssuance {
    /// The watched domain; `None` when it is no longer watched.
    pub name: Option<String>,
    /// The issuer's name.
    pub issuer: String,
    /// The serial number, hexadecimal; empty when it cannot be read.
    pub serial: String,
    /// The first names of the certificate, at most 10.
    pub names: Vec<String>,
    /// The log or search service that had it first.
    pub source: String,
    /// Names and verdict, for people.
    pub detail: String,
}

/// A person decided about an issuance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CtIssuanceDecision {
    /// The reason that the person gave.
    pub detail: String,
}

/// An issuance is expected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CtIssuanceExpected {
    /// The issuance is known by now.
    Known(CtIssuance),
    /// A person decided.
    Decided(CtIssuanceDecision),
}

/// How a CT log is inconsistent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CtLogAlarm {
    /// The log signed two trees that exclude each other.
    Forked,
    /// A later checkpoint has fewer entries.
    RolledBack,
    /// A tile does not belong to the checkpoint.
    WrongTile,
    /// The checkpoint is not one of this log.
    BadCheckpoint,
}

/// A CT log forked, rolled back, or serves entries that it did not sign.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CtLogInconsistent {
    /// The log's description.
    pub name: String,
    /// The log's operator.
    pub operator: String,
    /// The inconsistency.
    pub alarm: CtLogAlarm,
    /// The same for people.
    pub detail: String,
}

/// A CT log no longer has an alarm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CtLogConsistent {
    /// A later step was consistent.
    Recovered(CtLogRecovered),
    /// An operator had the log's position forgotten.
    Forgotten(CtForgotten),
}

/// A CT log is consistent again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CtLogRecovered {
    /// The log's description.
    pub name: String,
    /// The log's operator.
    pub operator: String,
    /// Always `None`: the body has the members of [`CtLogInconsistent`].
    pub alarm: Option<CtLogAlarm>,
    /// Always `None`.
    pub detail: Option<String>,
}

/// An operator had a log's position forgotten.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CtForgotten {}

/// A CT search service or log that has failed or lagged, or has caught up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CtLag {
    /// The service, or the log's description.
    pub name: String,
    /// The failure, for people.
    pub detail: String,
}

/// A CT search service or log no longer lags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CtLagEnded {
    /// The log caught up.
    CaughtUp(CtLag),
    /// An operator had the log's position forgotten.
    Forgotten(CtForgotten),
}
