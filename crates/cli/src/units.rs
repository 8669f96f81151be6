//! Quantities in human-readable form: durations with units, times, counts.

use std::time::Duration;

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};
use uuid::Uuid;

/// The units of a duration and their milliseconds.
const UNITS_MS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

/// Parses `500ms`, `2s`, `90m`, `12h`, `30d` or `2w`. A number without a unit is an error.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim();
    let Some((_, ms)) = UNITS_MS.iter().find(|(name, _)| *name == unit) else {
        return Err(match unit {
            "" => format!("{text:?} has no unit: write {text}ms, {text}s, {text}m, {text}h or {text}d"),
            _ => format!("unknown unit {unit:?}: use ms, s, m, h, d or w"),
        });
    };
    let number: f64 = number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    let total_ms = number * *ms as f64;
    // Ten thousand days. A longer duration is surely a mistake, and the limit avoids overflows.
    const MAX_MS: f64 = 10_000.0 * 86_400_000.0;
    if !(0.0..=MAX_MS).contains(&total_ms) {
        return Err(format!("{text:?} is out of range: the maximum is 10000d"));
    }
    Ok(Duration::from_micros((total_ms * 1_000.0) as u64))
}

/// Parses a time to microseconds since 1970, UTC: a date (`2026-11-01`), a date with time (`2026-11-01T12:00Z`), or a duration
/// before `now_us` (`2d`).
pub fn parse_time(text: &str, now_us: i64) -> Result<i64, String> {
    if let Ok(ago) = duration(text) {
        return Ok(now_us.saturating_sub(i64::try_from(ago.as_micros()).unwrap_or(i64::MAX)));
    }
    if let Ok(timestamp) = text.parse::<jiff::Timestamp>() {
        return Ok(timestamp.as_microsecond());
    }
    let civil: DateTime =
        text.parse().map_err(|_| format!("{text:?} is not a date (2026-11-01), a time or an age (2d)"))?;
    let since = civil.duration_since(date(1970, 1, 1).at(0, 0, 0, 0));
    Ok(since.as_secs().saturating_mul(1_000_000))
}

/// Returns the current time in microseconds since 1970.
pub fn now_us() -> i64 {
    jiff::Timestamp::now().as_microsecond()
}

fn civil(seconds: i64) -> DateTime {
    date(1970, 1, 1).at(0, 0, 0, 0).saturating_add(SignedDuration::from_secs(seconds))
}

/// Formats a Unix time in seconds as `2026-11-21T05:00:00Z`. Times after the year 9999 are shown as the end of that year.
pub fn rfc3339(seconds: i64) -> String {
    format!("{}Z", civil(seconds).strftime("%Y-%m-%dT%H:%M:%S"))
}

/// Parses the ID of an object.
///
/// # Errors
/// The text is not a UUID.
pub fn id(text: &str) -> Result<Uuid, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is not an ID such as 01a1fd45-7c2b-7e3a-9f10-5d4c3b2a1908: listings show the IDs")
    })
}

/// Formats a Unix time in microseconds as `2026-11-21T05:00:00.123456Z`.
pub fn rfc3339_us(at_us: i64) -> String {
    let micros = at_us.rem_euclid(1_000_000);
    format!("{}.{micros:06}Z", civil(at_us.div_euclid(1_000_000)).strftime("%Y-%m-%dT%H:%M:%S"))
}

/// Returns the whole seconds of a duration, the unit of durations in API requests.
pub fn whole_seconds(span: Duration) -> i64 {
    i64::try_from(span.as_secs()).unwrap_or(i64::MAX)
}

/// Like [`whole_seconds`], for 32-bit fields, which are enough for 136 years.
pub fn seconds(span: Duration) -> u32 {
    u32::try_from(span.as_secs()).unwrap_or(u32::MAX)
}

/// Formats a Unix time in seconds as a date: `2026-11-21`.
pub fn day(seconds: i64) -> String {
    civil(seconds).strftime("%Y-%m-%d").to_string()
}

/// Formats a Unix time in seconds as `2026-11-21 05:00`, UTC.
pub fn minute(seconds: i64) -> String {
    civil(seconds).strftime("%Y-%m-%d %H:%M").to_string()
}

/// Formats a time relative to now: `in 12 d`, `3 h ago`, `in 5 y`.
pub fn relative_time(seconds: i64) -> String {
    let size = seconds.unsigned_abs();
    let text = match size {
        0..60 => format!("{size} s"),
        60..7_200 => format!("{} min", size / 60),
        7_200..172_800 => format!("{} h", size / 3_600),
        172_800..63_072_000 => format!("{} d", size / 86_400),
        _ => format!("{} y", size / 31_557_600),
    };
    if seconds < 0 { format!("{text} ago") } else { format!("in {text}") }
}

/// Formats a duration with at most three digits: `850 ms`, `3.1 s`, `2 min 5 s`.
pub fn elapsed(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    match seconds {
        s if s < 1.0 => format!("{} ms", span.as_millis()),
        s if s < 100.0 => format!("{s:.1} s"),
        s if s < 7_200.0 => format!("{} min {} s", span.as_secs() / 60, span.as_secs() % 60),
        _ => format!("{} h {} min", span.as_secs() / 3_600, span.as_secs() / 60 % 60),
    }
}

/// Formats a number with a comma between groups of three digits: `18,000`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number with its noun in singular or plural: `1 endpoint`, `2 endpoints`.
pub fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Returns the time `span` from now, RFC 3339.
pub fn from_now(span: Duration) -> String {
    let span = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    rfc3339_us(now_us().saturating_add(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_a_uuid() {
        assert_eq!(id("00000000-0000-0000-0000-000000000000"), Ok(Uuid::nil()));
        assert!(id("web-1").unwrap_err().starts_with("\"web-1\" is not an ID"));
    }

    #[test]
    fn duration_requires_a_unit() {
        let ms = |text: &str| duration(text).map(|d| d.as_millis());
        for (text, wanted) in
            [("500ms", 500), ("2s", 2_000), ("1.5s", 1_500), ("30d", 2_592_000_000), ("2w", 1_209_600_000)]
        {
            assert_eq!(ms(text), Ok(wanted), "{text}");
        }
        for wrong in ["", "5", "s", "5 parsecs", "-1s", "99999999d", "1.2.3s"] {
            assert!(ms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn moment_is_parsed_as_age_or_date() {
        let now = 1_795_000_000_000_000;
        assert_eq!(parse_time("2d", now), Ok(now - 172_800_000_000));
        assert_eq!(parse_time("2026-11-01", now), Ok(1_793_491_200_000_000));
        assert_eq!(parse_time("2026-11-01T12:00:00Z", now), Ok(1_793_534_400_000_000));
        assert!(parse_time("soon", now).is_err());
    }

    #[test]
    fn rfc3339_times_are_formatted_up_to_the_year_9999() {
        for (seconds, wanted) in [
            (0, "1970-01-01T00:00:00Z"),
            (-631_152_000, "1950-01-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), wanted);
        }
    }

    #[test]
    fn counts_and_time_distances_are_formatted_for_reading() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(relative_time(-7_300), "2 h ago");
        assert_eq!(relative_time(12 * 86_400), "in 12 d");
    }
}
