//! Expiry thresholds, as pure functions of a certificate's validity and the settings.

use serde::{Deserialize, Serialize};
use store::DAY_US;
use x509::Severity;

use crate::tables::NO_THRESHOLD_US;

/// A time before the expiry of a certificate at which an alert is raised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threshold {
    /// Days before the expiry. Ignored for a certificate that has more than a third of its lifetime left at this threshold, because
    /// its renewal is not due yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// Remaining fraction of the lifetime, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// Severity of the alerts that this threshold raises.
    pub severity: Severity,
}

/// Settings of alerts: expiry thresholds, hour of digests, and retention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Thresholds for expiring certificates.
    pub thresholds: Vec<Threshold>,
    /// Hour (UTC) at which digests are sent, 0 to 23.
    pub digest_hour: u8,
    /// Days after which resolved alerts are deleted.
    pub keep_days: u32,
}

impl Default for Settings {
    /// Returns the default settings. Thresholds: a fifth and a tenth of the lifetime, then 3, 1 and 0 days. A renewal is due when a
    /// third of the lifetime remains, so at a fifth it is late.
    fn default() -> Self {
        let at = |fraction, severity| Threshold { days: None, fraction: Some(fraction), severity };
        let days = |days, severity| Threshold { days: Some(days), fraction: None, severity };
        Self {
            thresholds: vec![
                at(0.2, Severity::Medium),
                at(0.1, Severity::High),
                days(3, Severity::Critical),
                days(1, Severity::Critical),
                days(0, Severity::Critical),
            ],
            digest_hour: 7,
            keep_days: 90,
        }
    }
}

/// Maximum number of expiry thresholds in the settings. More thresholds would only repeat alerts.
const THRESHOLDS_MAX: usize = 16;

/// Maximum value of an expiry threshold in days.
const DAYS_MAX: u32 = 3_650;

impl Settings {
    /// Checks that the values are valid.
    ///
    /// # Errors
    /// A sentence that says what is invalid.
    pub fn check(&self) -> Result<(), String> {
        if self.thresholds.len() > THRESHOLDS_MAX {
            return Err(format!("at most {THRESHOLDS_MAX} thresholds"));
        }
        for threshold in &self.thresholds {
            match (threshold.days, threshold.fraction) {
                (Some(days), None) if days <= DAYS_MAX => {}
                (None, Some(fraction)) if (0.0..1.0).contains(&fraction) => {}
                (Some(_), None) => return Err(format!("days must be 0 to {DAYS_MAX}")),
                (None, Some(_)) => return Err("a fraction must be at least 0 and below 1".to_owned()),
                _ => return Err("a threshold needs either days or a fraction".to_owned()),
            }
        }
        if self.digest_hour > 23 {
            return Err("digest_hour must be 0 to 23".to_owned());
        }
        Ok(())
    }
}

/// The last expiry threshold that a certificate passed, and the time of the next one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Due {
    /// The last threshold passed: its index and severity.
    pub(super) reached: Option<(usize, Severity)>,
    /// Time of the next threshold, µs; [`NO_THRESHOLD_US`] after the last.
    pub(super) next_at_us: i64,
}

/// Returns the last threshold that a certificate has passed at `now_us`, and the time of the next one.
#[must_use]
pub(super) fn due(settings: &Settings, not_before_us: i64, not_after_us: i64, now_us: i64) -> Due {
    let life = not_after_us.saturating_sub(not_before_us).max(0);
    let mut instants: Vec<(i64, usize, Severity)> = settings
        .thresholds
        .iter()
        .enumerate()
        .filter_map(|(index, threshold)| {
            Some((instant(threshold, life, not_after_us)?, index, threshold.severity))
        })
        .collect();
    instants.sort_by_key(|(at, _, severity)| (*at, *severity));
    let reached = instants.iter().rev().find(|(at, ..)| *at <= now_us);
    Due {
        reached: reached.map(|(_, index, severity)| (*index, *severity)),
        next_at_us: instants.iter().map(|(at, ..)| *at).find(|at| *at > now_us).unwrap_or(NO_THRESHOLD_US),
    }
}

fn instant(threshold: &Threshold, life_us: i64, not_after_us: i64) -> Option<i64> {
    let before = match (threshold.days, threshold.fraction) {
        (Some(days), _) => {
            let before = i64::from(days).saturating_mul(DAY_US);
            if before > life_us / 3 {
                return None;
            }
            before
        }
        (None, Some(fraction)) => (life_us as f64 * fraction) as i64,
        (None, None) => return None,
    };
    Some(not_after_us.saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOUR_US: i64 = 3_600_000_000;

    #[test]
    fn expiry_thresholds_equal_those_of_the_scanner() {
        let defaults = Settings::default().thresholds;
        let scanner = x509::lint::EXPIRY_THRESHOLDS.map(|(threshold, severity)| match threshold {
            x509::lint::ExpiryThreshold::Days(days) => {
                Threshold { days: Some(days), fraction: None, severity }
            }
            x509::lint::ExpiryThreshold::Fraction(fraction) => {
                Threshold { days: None, fraction: Some(fraction), severity }
            }
        });
        assert_eq!(defaults, scanner);
    }

    #[test]
    fn expiry_thresholds_scale_with_the_certificate_lifetime() {
        let settings = Settings::default();
        // Columns: lifetime, time before the expiry, expected threshold.
        let table = [
            (90 * DAY_US, 31 * DAY_US, None),
            (90 * DAY_US, 18 * DAY_US, Some(Severity::Medium)),
            (90 * DAY_US, 9 * DAY_US, Some(Severity::High)),
            (90 * DAY_US, 3 * DAY_US, Some(Severity::Critical)),
            (90 * DAY_US, 0, Some(Severity::Critical)),
            (90 * DAY_US, -DAY_US, Some(Severity::Critical)),
            (6 * DAY_US, 3 * DAY_US, None),
            (6 * DAY_US, 2 * DAY_US, None),
            (6 * DAY_US, DAY_US, Some(Severity::Critical)),
            (6 * HOUR_US, 2 * HOUR_US, None),
            (6 * HOUR_US, HOUR_US, Some(Severity::Medium)),
            (6 * HOUR_US, HOUR_US / 2, Some(Severity::High)),
            (6 * HOUR_US, 0, Some(Severity::Critical)),
        ];
        for (life, left, reached) in table {
            let found = due(&settings, 0, life, life - left);
            assert_eq!(found.reached.map(|(_, severity)| severity), reached, "{life} {left}");
        }
    }

    proptest! {
        #[test]
        fn next_threshold_is_in_the_future_and_reached_at_its_time(
            life in 1..10 * 365 * DAY_US, now in 0..12 * 365 * DAY_US,
        ) {
            let settings = Settings::default();
            let current = due(&settings, 0, life, now);
            prop_assert!(current.next_at_us > now);
            if current.next_at_us != NO_THRESHOLD_US {
                prop_assert!(current.next_at_us <= life);
                let following = due(&settings, 0, life, current.next_at_us);
                prop_assert!(following.reached.is_some());
                prop_assert_ne!(following.reached, current.reached);
            }
        }
    }
}
