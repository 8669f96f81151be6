//! Formatting of values for display.

use jiff::{SpanRound, Timestamp, Unit};

/// Formats a time of the API to the minute, in UTC: `2026-11-29 01:02 UTC`. An invalid time is returned unchanged.
pub(crate) fn minute(text: &str) -> String {
    text.parse::<Timestamp>()
        .map_or_else(|_| text.to_owned(), |time| time.strftime("%F %H:%M UTC").to_string())
}

/// Formats the distance of a time from now: `in 12 days`, `3 hours ago`.
pub(crate) fn distance(text: &str, now: Timestamp) -> String {
    let Ok(time) = text.parse::<Timestamp>() else { return String::new() };
    let seconds = time.as_second() - now.as_second();
    let (amount, unit) = largest_unit(seconds.unsigned_abs());
    let plural = if amount == 1 { "" } else { "s" };
    match seconds {
        0 => "now".to_owned(),
        1.. => format!("in {amount} {unit}{plural}"),
        _ => format!("{amount} {unit}{plural} ago"),
    }
}

fn largest_unit(seconds: u64) -> (u64, &'static str) {
    match seconds {
        0..120 => (seconds, "second"),
        120..7_200 => (seconds / 60, "minute"),
        7_200..172_800 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    }
}

/// Formats a number with separators of thousands: `1,240,000`.
pub(crate) fn number(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

/// Formats the date of the day that is `after` days from now: `2026-11-29`.
pub(crate) fn day(now: Timestamp, after: i64) -> String {
    let span = jiff::Span::new().hours(after.saturating_mul(24));
    let time =
        now.checked_add(span.round(SpanRound::new().largest(Unit::Hour)).unwrap_or(span)).unwrap_or(now);
    time.strftime("%F").to_string()
}

/// Formats a duration in its largest whole unit: `47 days`, `90 minutes`; empty for 0.
pub(crate) fn duration(seconds: i64) -> String {
    let (amount, unit) = match seconds {
        0 => return String::new(),
        _ if seconds % 86_400 == 0 => (seconds / 86_400, "day"),
        _ if seconds % 3_600 == 0 => (seconds / 3_600, "hour"),
        _ if seconds % 60 == 0 => (seconds / 60, "minute"),
        _ => (seconds, "second"),
    };
    format!("{amount} {unit}{}", if amount == 1 { "" } else { "s" })
}

/// Formats a count with its noun: `1 certificate`, `12 certificates`, `50 certificates or more`.
pub(crate) fn counted(count: usize, more: bool, noun: &str) -> String {
    let plural = if count == 1 && !more { "" } else { "s" };
    let more = if more { " or more" } else { "" };
    format!("{count} {noun}{plural}{more}")
}

/// Formats a noun for a count: `site` for one, `sites` for any other number.
pub(crate) fn noun(count: usize, noun: &str) -> String {
    format!("{noun}{}", if count == 1 { "" } else { "s" })
}

/// Converts the API's name of a key type to the display form of certificate keys: `P-256`, `RSA 2048`.
pub(crate) fn key_type(name: &str) -> String {
    match (name.strip_prefix('p'), name.strip_prefix("rsa")) {
        (Some(bits), _) => format!("P-{bits}"),
        (_, Some(bits)) => format!("RSA {bits}"),
        _ => name.to_owned(),
    }
}

/// Returns the first characters of a text, with an ellipsis if there are more.
pub(crate) fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_types_and_nouns_are_formatted() {
        for (name, shown) in [("p384", "P-384"), ("rsa2048", "RSA 2048"), ("ed25519", "ed25519"), ("", "")] {
            assert_eq!(key_type(name), shown);
        }
        assert_eq!((noun(1, "site").as_str(), noun(0, "site").as_str()), ("site", "sites"));
    }

    #[test]
    fn numbers_and_times_are_formatted() {
        assert_eq!(number(0), "0");
        assert_eq!(number(999), "999");
        assert_eq!(number(1_240_000), "1,240,000");
        assert_eq!(number(-1_000), "-1,000");
        let now: Timestamp = "2026-11-29T01:00:00Z".parse().unwrap();
        assert_eq!(minute("2026-11-29T01:02:03Z"), "2026-11-29 01:02 UTC");
        assert_eq!(minute("never"), "never");
        assert_eq!(distance("2026-12-11T01:00:00Z", now), "in 12 days");
        assert_eq!(distance("2026-11-28T22:00:00Z", now), "3 hours ago");
        assert_eq!(distance("2026-11-29T01:00:01Z", now), "in 1 second");
        assert_eq!(day(now, 3), "2026-12-02");
    }

    #[test]
    fn durations_are_formatted_in_their_largest_whole_unit() {
        let all =
            [(4_060_800, "47 days"), (86_400, "1 day"), (5_400, "90 minutes"), (61, "61 seconds"), (0, "")];
        for (seconds, text) in all {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn counts_are_formatted_with_their_noun() {
        assert_eq!(counted(0, false, "profile"), "0 profiles");
        assert_eq!(counted(1, false, "profile"), "1 profile");
        assert_eq!(counted(1, true, "profile"), "1 profiles or more");
        assert_eq!(counted(50, true, "certificate"), "50 certificates or more");
    }
}
