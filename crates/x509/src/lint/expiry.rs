//! Severity of an approaching expiry.

use crate::{DAY, Severity, UnixTime};

/// Threshold before the expiry of a certificate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExpiryThreshold {
    /// This fraction of the lifetime is left, 0 to 1.
    Fraction(f64),
    /// This number of days is left. Ignored for certificates whose lifetime is less than three times this number.
    Days(u32),
}

/// Thresholds at which the severity of an approaching expiry rises; also the defaults of a server's alerts. A renewal is due with a
/// third of the lifetime left: at a fifth it is late, and at a tenth something is broken.
pub const EXPIRY_THRESHOLDS: [(ExpiryThreshold, Severity); 5] = [
    (ExpiryThreshold::Fraction(0.2), Severity::Medium),
    (ExpiryThreshold::Fraction(0.1), Severity::High),
    (ExpiryThreshold::Days(3), Severity::Critical),
    (ExpiryThreshold::Days(1), Severity::Critical),
    (ExpiryThreshold::Days(0), Severity::Critical),
];

/// Returns the highest severity whose threshold is reached at `now`; `None` before the first threshold.
#[must_use]
pub fn expiry_severity(not_before: UnixTime, not_after: UnixTime, now: UnixTime) -> Option<Severity> {
    let (life, left) = (not_after.since(not_before).max(0), not_after.since(now));
    let reached = |threshold| match threshold {
        ExpiryThreshold::Fraction(fraction) => left <= (life as f64 * fraction) as i64,
        ExpiryThreshold::Days(days) => {
            let before = i64::from(days) * DAY;
            before <= life / 3 && left <= before
        }
    };
    EXPIRY_THRESHOLDS.iter().filter(|(threshold, _)| reached(*threshold)).map(|(_, severity)| *severity).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_severity_rises_as_expiry_approaches() {
        use Severity::{Critical, High, Medium};
        // Lifetime in days, days left, severity.
        let table = [
            (398, 80, None),
            (398, 79, Some(Medium)),
            (398, 39, Some(High)),
            (398, 3, Some(Critical)),
            (90, 19, None),
            (90, 18, Some(Medium)),
            (90, 9, Some(High)),
            (90, 4, Some(High)),
            (90, 3, Some(Critical)),
            // Three days are half of a lifetime of six: not late.
            (6, 3, None),
            (6, 1, Some(Critical)),
        ];
        for (life, left, want) in table {
            let (from, to) = (UnixTime(0), UnixTime(life * DAY));
            assert_eq!(expiry_severity(from, to, UnixTime((life - left) * DAY)), want, "{left} of {life}");
        }
    }
}
