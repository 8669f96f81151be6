//! Rules that findings refer to, with their codes, severities and sources.

use coded::coded;
use serde::Serialize;

use crate::Fingerprint;

coded! {
    /// Severity of a finding or an alert, in ascending order.
    #[derive(Default)]
    pub enum Severity: "severity" {
        /// Information that needs no action.
        #[default]
        Info = 0 => "info",
        /// No effect on clients today.
        Low = 1 => "low",
        /// Some clients reject the certificate, or will soon.
        Medium = 2 => "medium",
        /// Most clients reject the certificate, or the key is unsafe.
        High = 3 => "high",
        /// Clients fail now.
        Critical = 4 => "critical",
    }
}

/// A rule, defined as a constant. Its code never changes once released.
#[derive(Debug, Eq, PartialEq)]
pub struct Rule {
    /// Stable code for filters and alerts: `area.what`, for example `certificate.expired`.
    pub code: &'static str,
    /// Severity of a violation.
    pub severity: Severity,
    /// Short description of a violation.
    pub title: &'static str,
    /// Source of the rule: a section of an RFC or of the Baseline Requirements, or a policy.
    pub source: &'static str,
    /// Advice on how to correct a violation.
    pub advice: &'static str,
}

/// A violation of a rule, with its evidence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The rule that is violated.
    pub rule: &'static Rule,
    /// The fact that violates the rule, as human-readable text.
    pub evidence: String,
    /// Fingerprint of the certificate, if the finding is about a certificate.
    pub certificate: Option<Fingerprint>,
}

impl Serialize for Finding {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut out = serializer.serialize_struct("Finding", 6)?;
        out.serialize_field("code", self.rule.code)?;
        out.serialize_field("severity", &self.rule.severity)?;
        out.serialize_field("title", self.rule.title)?;
        out.serialize_field("evidence", &self.evidence)?;
        out.serialize_field("source", self.rule.source)?;
        out.serialize_field("certificate", &self.certificate)?;
        out.end()
    }
}
