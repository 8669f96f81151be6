//! Times in the format of the API: RFC 3339 in UTC.

use jiff::Timestamp;

const LAST: &str = "9999-12-31T23:59:59Z";
const FIRST: &str = "0001-01-01T00:00:00Z";

/// Formats microseconds since 1970-01-01 UTC as `2026-01-02T03:04:05Z`. Times outside the years 1 to 9999 are limited to that
/// range.
#[must_use]
pub fn shown(at_us: i64) -> String {
    match Timestamp::from_microsecond(at_us) {
        Ok(at) => at.to_string(),
        // The range of jiff ends hours before the year 9999 does. The last second of 9999 means "no expiry" in certificates (RFC
        // 5280 section 4.1.2.5).
        Err(_) if at_us > 0 => LAST.to_owned(),
        Err(_) => FIRST.to_owned(),
    }
}

/// Formats an optional time like [`shown`].
#[must_use]
pub fn maybe_shown(at_us: Option<i64>) -> Option<String> {
    at_us.map(shown)
}

/// Parses an RFC 3339 time, and returns microseconds since 1970-01-01 UTC.
///
/// # Errors
/// 400 for an invalid time.
pub fn parsed(text: &str) -> Result<i64, crate::Problem> {
    let at: Timestamp = text.parse().map_err(|_| {
        crate::Problem::bad_request(format_args!("{text:?} is not a time: write it as 2026-01-02T03:04:05Z"))
    })?;
    Ok(at.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_roundtrip_as_rfc_3339_and_are_clamped() {
        assert_eq!(shown(0), "1970-01-01T00:00:00Z");
        assert_eq!(shown(1_767_323_045_000_001), "2026-01-02T03:04:05.000001Z");
        assert_eq!(parsed("2026-01-02T04:04:05.000001+01:00").unwrap(), 1_767_323_045_000_001);
        assert_eq!(shown(253_402_300_799_000_000), LAST);
        assert_eq!((shown(i64::MAX).as_str(), shown(i64::MIN).as_str()), (LAST, FIRST));
        assert!(parsed("yesterday").is_err());
    }
}
