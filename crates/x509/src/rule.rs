//! Rules: their codes, severities and sources.

use coded::coded;
use serde::Serialize;

use crate::Fingerprint;

coded! {
    /// How bad a finding or an alert is, mildest first.
    #[derive(Default)]
    pub enum Severity: "severity" {
        /// Worth knowing; nothing to do.
        #[default]
        Info = 0 => "info",
        /// Will not hurt today.
        Low = 1 => "low",
        /// Some clients object, or will soon.
        Medium = 2 => "medium",
        /// Most clients object, or the key is unsafe.
        High = 3 => "high",
        /// Clients fail now.
        Critical = 4 => "critical",
    }
}

/// A rule of the field, as a constant: its code never changes once released.
#[derive(Debug, Eq, PartialEq)]
pub struct Rule {
    /// Stable, for filters and alerts: `area.what`, for example `certificate.expired`.
    pub code: &'static str,
    /// How bad a breach is.
    pub severity: Severity,
    /// A breach in a few words.
    pub title: &'static str,
    /// Where the rule is written: an RFC section, a Baseline Requirements section, a policy.
    pub source: &'static str,
    /// A hint: what to do.
    pub advice: &'static str,
}

/// A rule that was broken, with what shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Which rule.
    pub rule: &'static Rule,
    /// The fact that broke it, for people.
    pub evidence: String,
    /// The certificate, if the finding is about one.
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
