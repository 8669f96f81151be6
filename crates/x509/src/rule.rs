//! What can be wrong, how bad it is, and who says so.

use serde::Serialize;

use crate::Fingerprint;

/// How bad a finding is, mildest first.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Severity {
    /// Worth knowing; nothing to do.
    Info = 0,
    /// Will not hurt today.
    Low = 1,
    /// Some clients object, or will soon.
    Medium = 2,
    /// Most clients object, or the key is unsafe.
    High = 3,
    /// Clients fail now.
    Critical = 4,
}

impl Severity {
    /// All severities, mildest first.
    pub const ALL: [Self; 5] = [Self::Info, Self::Low, Self::Medium, Self::High, Self::Critical];

    /// The lower-case word used in every output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

impl std::fmt::Display for Severity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Severity {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|s| s.name() == word)
            .ok_or_else(|| format!("no severity is called {word:?}: use info, low, medium, high or critical"))
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
    /// What to do about it.
    pub advice: &'static str,
}

/// A rule that was broken, with what shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// Which rule.
    pub rule: &'static Rule,
    /// The fact that broke it, for people.
    pub evidence: String,
    /// The certificate it is about, where it is about one.
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
