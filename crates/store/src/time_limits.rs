//! Timeouts as functions of a certificate's lifetime, from two hours to 398 days.
//!
//! A constant timeout that suits one-year certificates is longer than the lifetime of a short-lived certificate. One that suits
//! one-day certificates would raise alerts every week for a one-year certificate. Lifecycle, watches and alerts all take their
//! timeouts from here. Thresholds of expiry alerts are fractions of the lifetime, too, and can be configured.
//!
//! | lifetime | run timeout | minimum retry delay | backoff | approval timeout | ARI retry | previous version served | deployment late (a third of the lifetime left) |
//! | --- | --- | --- | --- | --- | --- | --- | --- |
//! | 2 hours | 10 min | 72 s | 7 s – 72 s | 15 min | 6 min | 6 min | 4 min |
//! | 6 days | 12 h | 1 h | 30 s – 1 h | 18 h | 6 h | 7.2 h | 4.8 h |
//! | 47 days | 3 days | 1 h | 30 s – 1 h | 5.9 days | 6 h | 1 day | 1 day |
//! | 398 days | 3 days | 1 h | 30 s – 1 h | 7 days | 6 h | 1 day | 1 day |

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: i64 = 24 * HOUR_US;

/// Assumed lifetime in µs of a certificate that was never issued and whose request contains no lifetime.
pub const LIFE_UNKNOWN_US: i64 = 90 * DAY_US;

/// Returns how long a run keeps trying, in µs: a twelfth of the lifetime, 5 minutes to 3 days. A renewal is due when a third of the
/// lifetime remains, so there is time for four runs.
#[must_use]
pub fn run_timeout_us(life_us: i64) -> i64 {
    (life_us / 12).clamp(5 * MINUTE_US, 3 * DAY_US)
}

/// Returns the time between a failed run and the next one, in µs: a tenth of the remaining lifetime, at most a day. At least a
/// hundredth of the lifetime (a minute to an hour), so that an issuer is not called without a pause.
#[must_use]
pub fn retry_delay_us(life_us: i64, left_us: i64) -> i64 {
    let least = (life_us / 100).clamp(MINUTE_US, HOUR_US);
    (left_us / 10).clamp(least, DAY_US)
}

/// Returns the first pause after a failed attempt, in µs: a thousandth of the lifetime, 5 to 30 seconds.
#[must_use]
pub fn initial_backoff_us(life_us: i64) -> i64 {
    (life_us / 1_000).clamp(5 * SECOND_US, 30 * SECOND_US)
}

/// Returns the maximum backoff between the attempts of a run, in µs: 1/100 of the certificate's lifetime, but at least 30 seconds
/// and at most an hour.
#[must_use]
pub fn max_backoff_us(life_us: i64) -> i64 {
    (life_us / 100).clamp(30 * SECOND_US, BACKOFF_MAX_US)
}

/// The longest pause between attempts for any lifetime, in µs.
pub const BACKOFF_MAX_US: i64 = HOUR_US;

/// Returns how long an approval may take, in µs: an eighth of the lifetime, 10 minutes to 7 days. After this time the run ends, and
/// the next run is planned.
#[must_use]
pub fn approval_timeout_us(life_us: i64) -> i64 {
    (life_us / 8).clamp(10 * MINUTE_US, 7 * DAY_US)
}

/// Returns the shortest lead time of a renewal, in µs: ten minutes, or half the lifetime if that is shorter.
#[must_use]
pub fn min_lead_us(life_us: i64) -> i64 {
    (10 * MINUTE_US).min(life_us / 2)
}

/// Returns the minimum time between the start of a maintenance window and the expiry, in µs: a day, or a quarter of the lifetime if
/// that is shorter. A renewal does not wait for a window that starts later.
#[must_use]
pub fn window_margin_us(life_us: i64) -> i64 {
    DAY_US.min(life_us / 4)
}

/// Returns the time until the next ARI request after a failed one, in µs: a twentieth of the lifetime, 5 minutes to 6 hours.
#[must_use]
pub fn suggestion_retry_us(life_us: i64) -> i64 {
    (life_us / 20).clamp(5 * MINUTE_US, 6 * HOUR_US)
}

/// Returns how long after a renewal an endpoint may serve the previous version, in µs: a twentieth of the lifetime, 5 minutes to a
/// day.
#[must_use]
pub fn replaced_us(life_us: i64) -> i64 {
    (life_us / 20).clamp(5 * MINUTE_US, DAY_US)
}

/// Returns the time after which a new version that is not fully deployed raises an alert, in µs: a tenth of the served version's
/// remaining lifetime, a minute to a day.
#[must_use]
pub fn late_deployment_us(left_us: i64) -> i64 {
    (left_us / 10).clamp(MINUTE_US, DAY_US)
}

/// Returns how long an observation of an endpoint counts as current, in µs: a quarter of the lifetime, 1 to 30 days.
#[must_use]
pub fn observation_max_age_us(life_us: i64) -> i64 {
    (life_us / 4).clamp(DAY_US, 30 * DAY_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the remaining lifetime at which a renewal is due by the default rule: a third.
    fn left_at_renewal(life_us: i64) -> i64 {
        life_us / 3
    }

    #[test]
    fn renewal_delays_fit_into_every_certificate_lifetime() {
        for life in [2 * HOUR_US, 6 * HOUR_US, DAY_US, 6 * DAY_US, 47 * DAY_US, 90 * DAY_US, 398 * DAY_US] {
            let left = left_at_renewal(life);
            assert!(3 * run_timeout_us(life) <= left, "{life}: three runs fit in");
            assert!(4 * max_backoff_us(life) <= run_timeout_us(life), "{life}: a run tries more than once");
            assert!(initial_backoff_us(life) <= max_backoff_us(life), "{life}");
            assert!(
                2 * approval_timeout_us(life) <= left.max(1),
                "{life}: a refusal leaves time for another run"
            );
            assert!(retry_delay_us(life, left) <= left / 4, "{life}");
            assert!(min_lead_us(life) <= left, "{life}");
            assert!(window_margin_us(life) <= left, "{life}");
            assert!(suggestion_retry_us(life) <= left / 4, "{life}");
            assert!(replaced_us(life) <= left / 4, "{life}");
            // A late deployment must be reported before the first expiry threshold: a fifth of the lifetime.
            assert!(left - late_deployment_us(left) >= life / 5, "{life}");
        }
    }

    #[test]
    fn renewal_delays_match_the_documented_table() {
        let of = |life: i64| {
            let left = left_at_renewal(life);
            [
                run_timeout_us(life),
                retry_delay_us(life, 0),
                initial_backoff_us(life),
                approval_timeout_us(life),
                late_deployment_us(left),
            ]
        };
        let minutes = |count: i64| count * MINUTE_US;
        assert_eq!(of(2 * HOUR_US), [minutes(10), 72 * SECOND_US, 7_200_000, minutes(15), minutes(4)],);
        assert_eq!(of(6 * DAY_US), [12 * HOUR_US, HOUR_US, 30 * SECOND_US, 18 * HOUR_US, minutes(288)]);
        assert_eq!(of(398 * DAY_US), [3 * DAY_US, HOUR_US, 30 * SECOND_US, 7 * DAY_US, DAY_US]);
    }
}
