//! Alerts and their channels: what people must know, told once, to those who asked, until somebody takes care.
//!
//! The outbox feeds it: every event that people care about commits with what it tells of, and is turned into alerts in
//! one transaction with this consumer's place. Certificates near their end are found by a schedule that renewals keep.
//! A message is never counted as sent unless its channel took it.

mod channel;
mod digest;
mod engine;
mod event;
mod message;
mod rule;
mod threshold;
mod work;

pub use channel::{ChannelConfig, ChannelError, Channels};
pub use engine::{AlertError, AlertOptions, AlertReport, Alerts, ChannelView, NewChannel};
pub use message::{Message, MessageReason};
pub use rule::{Attributes, Escalation, Matcher, Rule, Silence};
pub use threshold::{Settings, Threshold};

use serde::{Deserialize, Serialize};

/// How bad it is.
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
