//! Types and functions that the response parsers of all search services share.

use crate::issuance::Issuance;

/// The issuances in one response.
#[derive(Clone, Debug, Default)]
pub struct IssuancesFound {
    /// The issuances, in the order of the service.
    pub issuances: Vec<Issuance>,
    /// The next value of the cursor's `after`; `None` when there is nothing new.
    pub after: Option<String>,
}

/// The response does not have the documented format.
#[derive(Debug, thiserror::Error)]
#[error("the response cannot be parsed: {0}")]
pub struct InvalidResponse(#[from] serde_json::Error);

/// Parses an RFC 3339 time; without an offset it is UTC. Returns 1970-01-01 for an invalid time.
pub(super) fn time(text: &str) -> x509::UnixTime {
    let seconds = text.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_second).or_else(|_| {
        let civil: Result<jiff::civil::DateTime, _> = text.parse();
        civil.and_then(|civil| civil.to_zoned(jiff::tz::TimeZone::UTC)).map(|at| at.timestamp().as_second())
    });
    x509::UnixTime(seconds.unwrap_or_default())
}
