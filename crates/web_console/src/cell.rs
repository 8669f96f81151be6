//! Content of a table cell or of a description list.

use jiff::Timestamp;

use crate::format;

/// The color of a state. A badge always has a text too, because color alone is not accessible.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tone {
    /// The state is healthy.
    Good,
    /// The state needs action soon.
    Warn,
    /// The state needs action now.
    Bad,
    /// The state is neutral.
    Calm,
}

impl Tone {
    /// Returns the CSS class of the color.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Calm => "calm",
        }
    }

    /// Returns the tone of a state name of the API.
    pub(crate) fn of(state: &str) -> Self {
        match state {
            "active" | "ok" | "valid" | "done" | "succeeded" | "verified" | "online" | "healthy"
            | "issued" | "approved" | "resolved" | "current" | "answering" | "ready" | "enabled"
            | "deployed" | "unchanged" => Self::Good,
            "expiring" | "pending" | "waiting" | "warning" | "acknowledged" | "renewing" | "stale"
            | "held" | "silent" | "due" | "unknown" | "high" | "medium" => Self::Warn,
            "expired" | "failed" | "revoked" | "critical" | "firing" | "open" | "offline" | "refused"
            | "denied" | "rejected" | "mismatch" | "not_deployed" | "error" | "broken" | "rolled_back" => {
                Self::Bad
            }
            _ => Self::Calm,
        }
    }
}

/// The content of a cell. Templates escape it.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// An unknown or missing value.
    Empty,
    /// A text without a link.
    Text(String),
    /// An identifier in a monospaced font, with a copy button.
    Code(String),
    /// A link within the console.
    Link { href: String, text: String },
    /// A time, and its distance from now.
    Time { iso: String, shown: String, distance: String },
    /// A state, shown as a badge.
    Badge { tone: Tone, text: String },
    /// A right-aligned number.
    Number(String),
    /// A checkbox that selects the row, in the form around the table.
    Tick { name: &'static str, value: String, label: String },
}

impl Cell {
    /// Creates a text cell; [`Cell::Empty`] for an empty text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Some(text.into()).filter(|text| !text.is_empty()).map_or(Self::Empty, Self::Text)
    }

    /// Creates a cell with an identifier.
    pub(crate) fn code(text: impl Into<String>) -> Self {
        Some(text.into()).filter(|text| !text.is_empty()).map_or(Self::Empty, Self::Code)
    }

    /// Creates a link to a page of the console.
    pub(crate) fn link(href: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Link { href: href.into(), text: text.into() }
    }

    /// Creates a cell with a time of the API.
    pub(crate) fn time(iso: &str, now: Timestamp) -> Self {
        if iso.is_empty() {
            return Self::Empty;
        }
        Self::Time { iso: iso.to_owned(), shown: format::minute(iso), distance: format::distance(iso, now) }
    }

    /// Creates a badge with a state name of the API; `not_deployed` is shown as `not deployed`.
    pub(crate) fn state(name: &str) -> Self {
        if name.is_empty() {
            return Self::Empty;
        }
        Self::Badge { tone: Tone::of(name), text: name.replace('_', " ") }
    }

    /// Creates a badge with a given tone.
    pub(crate) fn badge(tone: Tone, text: impl Into<String>) -> Self {
        Self::Badge { tone, text: text.into() }
    }

    /// Creates a checkbox that selects the row; `label` is its accessible name.
    pub(crate) fn tick(name: &'static str, value: impl Into<String>, label: impl Into<String>) -> Self {
        Self::Tick { name, value: value.into(), label: label.into() }
    }

    /// Returns whether the text has a word that is too long for a narrow column, such as a fingerprint. Words end at spaces, slashes
    /// and hyphens.
    pub(crate) fn is_long(&self) -> bool {
        const CHARS_MAX: usize = 32;
        let (Self::Text(text) | Self::Code(text) | Self::Link { text, .. }) = self else { return false };
        text.split([' ', '/', '-', '\n']).any(|word| word.chars().count() > CHARS_MAX)
    }

    pub(crate) fn number(value: i64) -> Self {
        Self::Number(format::number(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_long_and_uuids_are_not() {
        assert!(Cell::code("a".repeat(64)).is_long());
        assert!(Cell::text(format!("subject {}", "b".repeat(33))).is_long());
        assert!(!Cell::text("01a22b5e-dcc0-739b-9eb7-537f0ca272b7").is_long());
        assert!(!Cell::link("/console", "GET localhost:41775/api/stock").is_long());
    }
}
