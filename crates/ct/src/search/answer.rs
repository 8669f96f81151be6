//! What the services' answers have in common.

use crate::issuance::Issuance;

/// The issuances of one answer.
#[derive(Clone, Debug, Default)]
pub struct IssuancesFound {
    /// The issuances, in the service's order.
    pub issuances: Vec<Issuance>,
    /// The cursor's `after` from here on; `None` when there is nothing new.
    pub after: Option<String>,
}

/// An answer that is not what the service's documentation says.
#[derive(Debug, thiserror::Error)]
#[error("an answer that cannot be read: {0}")]
pub struct BadAnswer(#[from] serde_json::Error);

/// RFC 3339, or without an offset, which means UTC; 1970 for what is no time.
pub(super) fn time(text: &str) -> x509::UnixTime {
    let seconds = text.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_second).or_else(|_| {
        let civil: Result<jiff::civil::DateTime, _> = text.parse();
        civil.and_then(|civil| civil.to_zoned(jiff::tz::TimeZone::UTC)).map(|at| at.timestamp().as_second())
    });
    x509::UnixTime(seconds.unwrap_or_default())
}
