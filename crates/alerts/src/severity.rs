//! The severity of an alert.

use serde::{Deserialize, Serialize};

/// The severity of an alert.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Severity {
    /// Good to know.
    #[default]
    Info = 0,
    /// When there is time.
    Low = 1,
    /// This week.
    Medium = 2,
    /// Today.
    High = 3,
    /// Now.
    Critical = 4,
}

impl Severity {
    /// As stored.
    #[must_use]
    pub fn from_stored(number: i64) -> Self {
        match number {
            ..=0 => Self::Info,
            1 => Self::Low,
            2 => Self::Medium,
            3 => Self::High,
            _ => Self::Critical,
        }
    }

    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
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
        f.pad(self.word())
    }
}
