//! How long to wait, as functions of a certificate's life, from two hours to 398 days.
//!
//! A constant that suits a year is longer than a short-lived certificate lives, and one that suits a day would page
//! people every week of the year. All of lifecycle, watches and alerts take their patience from here. Thresholds of alerts
//! about expiry are fractions of the life too, and are settings.
//!
//! | life | run | retry at least | backoff | approval | suggestion | replaced | deployment late (a third left) |
//! | --- | --- | --- | --- | --- | --- | --- | --- |
//! | 2 hours | 10 min | 72 s | 7 s – 72 s | 15 min | 6 min | 6 min | 4 min |
//! | 6 days | 12 h | 1 h | 30 s – 1 h | 18 h | 6 h | 7.2 h | 4.8 h |
//! | 47 days | 3 days | 1 h | 30 s – 1 h | 5.9 days | 6 h | 1 day | 1 day |
//! | 398 days | 3 days | 1 h | 30 s – 1 h | 7 days | 6 h | 1 day | 1 day |

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;
const DAY_US: i64 = 24 * HOUR_US;

/// The life assumed of a certificate that was never issued and whose request names none, µs.
pub const LIFE_UNKNOWN_US: i64 = 90 * DAY_US;

/// A twelfth of the life, 5 minutes to 3 days: how long a run goes on trying, µs. A third of the life is left when a
/// renewal is due, so four runs fit in.
#[must_use]
pub fn run_us(life_us: i64) -> i64 {
    (life_us / 12).clamp(5 * MINUTE_US, 3 * DAY_US)
}

/// A tenth of the life that is left, at most a day: when the next run follows one that failed, µs. Never sooner than a
/// hundredth of the life, a minute to an hour, so that an issuer is not asked without a pause.
#[must_use]
pub fn retry_us(life_us: i64, left_us: i64) -> i64 {
    let least = (life_us / 100).clamp(MINUTE_US, HOUR_US);
    (left_us / 10).clamp(least, DAY_US)
}

/// A thousandth of the life, 5 to 30 seconds: the first pause after an attempt that may succeed later, µs.
#[must_use]
pub fn backoff_first_us(life_us: i64) -> i64 {
    (life_us / 1_000).clamp(5 * SECOND_US, 30 * SECOND_US)
}

/// A hundredth of the life, 30 seconds to an hour: the longest pause between attempts, µs.
#[must_use]
pub fn backoff_longest_us(life_us: i64) -> i64 {
    (life_us / 100).clamp(30 * SECOND_US, BACKOFF_MAX_US)
}

/// The longest pause between attempts for any life, µs.
pub const BACKOFF_MAX_US: i64 = HOUR_US;

/// An eighth of the life, 10 minutes to 7 days: how long an approval may take, µs. Afterwards the run ends and the next
/// one is planned.
#[must_use]
pub fn approval_us(life_us: i64) -> i64 {
    (life_us / 8).clamp(10 * MINUTE_US, 7 * DAY_US)
}

/// Ten minutes, or half the life if that is shorter: the shortest lead of a renewal, µs.
#[must_use]
pub fn lead_least_us(life_us: i64) -> i64 {
    (10 * MINUTE_US).min(life_us / 2)
}

/// A day, or a quarter of the life if that is shorter: a maintenance window that opens later than this before the end is
/// not waited for, µs.
#[must_use]
pub fn window_margin_us(life_us: i64) -> i64 {
    DAY_US.min(life_us / 4)
}

/// A twentieth of the life, 5 minutes to 6 hours: when to ask an issuer again for its suggestion (ARI) after it did not
/// answer, µs.
#[must_use]
pub fn suggestion_us(life_us: i64) -> i64 {
    (life_us / 20).clamp(5 * MINUTE_US, 6 * HOUR_US)
}

/// A twentieth of the life, 5 minutes to a day: how long after a renewal an endpoint may serve the version before, µs.
#[must_use]
pub fn replaced_us(life_us: i64) -> i64 {
    (life_us / 20).clamp(5 * MINUTE_US, DAY_US)
}

/// A tenth of what is left of the served version, a minute to a day: after this a new version that is not in place
/// everywhere is an alert, µs.
#[must_use]
pub fn deployment_us(left_us: i64) -> i64 {
    (left_us / 10).clamp(MINUTE_US, DAY_US)
}

/// A quarter of the life, 1 to 30 days: how long an observation of an endpoint says what it serves, µs.
#[must_use]
pub fn observation_us(life_us: i64) -> i64 {
    (life_us / 4).clamp(DAY_US, 30 * DAY_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When a renewal is due with the default rule: a third of the life is left.
    fn left_at_renewal(life_us: i64) -> i64 {
        life_us / 3
    }

    #[test]
    fn every_patience_fits_into_every_life() {
        for life in [2 * HOUR_US, 6 * HOUR_US, DAY_US, 6 * DAY_US, 47 * DAY_US, 90 * DAY_US, 398 * DAY_US] {
            let left = left_at_renewal(life);
            assert!(3 * run_us(life) <= left, "{life}: three runs fit in");
            assert!(4 * backoff_longest_us(life) <= run_us(life), "{life}: a run tries more than once");
            assert!(backoff_first_us(life) <= backoff_longest_us(life), "{life}");
            assert!(2 * approval_us(life) <= left.max(1), "{life}: a refusal leaves time for another run");
            assert!(retry_us(life, left) <= left / 4, "{life}");
            assert!(lead_least_us(life) <= left, "{life}");
            assert!(window_margin_us(life) <= left, "{life}");
            assert!(suggestion_us(life) <= left / 4, "{life}");
            assert!(replaced_us(life) <= left / 4, "{life}");
            // What is late is told before the first threshold of expiry: a fifth of the life.
            assert!(left - deployment_us(left) >= life / 5, "{life}");
        }
    }

    #[test]
    fn the_table_of_the_module_is_right() {
        let of = |life: i64| {
            let left = left_at_renewal(life);
            [run_us(life), retry_us(life, 0), backoff_first_us(life), approval_us(life), deployment_us(left)]
        };
        let minutes = |count: i64| count * MINUTE_US;
        assert_eq!(of(2 * HOUR_US), [minutes(10), 72 * SECOND_US, 7_200_000, minutes(15), minutes(4)],);
        assert_eq!(of(6 * DAY_US), [12 * HOUR_US, HOUR_US, 30 * SECOND_US, 18 * HOUR_US, minutes(288)]);
        assert_eq!(of(398 * DAY_US), [3 * DAY_US, HOUR_US, 30 * SECOND_US, 7 * DAY_US, DAY_US]);
    }
}
