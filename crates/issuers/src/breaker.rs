//! The circuit breaker of an issuer, as a pure state machine. The clock and the random numbers are arguments.

use serde::{Deserialize, Serialize};

use crate::config::Limits;
use crate::error::IssuerError;

/// Maximum duration in µs of a probe order in the half-open state. After this time another order may pass.
const PROBE_US: i64 = 120_000_000;
const SECOND_US: i64 = 1_000_000;

/// State of a circuit breaker: closed, open or half-open.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Breaker {
    /// All orders may pass.
    Closed {
        /// Number of failures since the last success.
        failures: u32,
    },
    /// No order may pass.
    Open {
        /// End of the open state, µs.
        until_us: i64,
        /// Number of consecutive open states.
        rests: u32,
    },
    /// One order is in progress as a probe.
    HalfOpen {
        /// Time after which the probe counts as lost, µs.
        until_us: i64,
        /// Number of consecutive open states before the probe.
        rests: u32,
    },
}

/// Health of an issuer, as shown by the result of an order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Health {
    /// The issuer works: it responded, even if it rejected the order.
    Working,
    /// The issuer failed.
    Failing {
        /// Pause that the issuer requested, µs.
        rest_us: Option<i64>,
    },
    /// The order did not reach the issuer.
    Unknown,
}

impl Health {
    /// Returns the health of the issuer that an error indicates.
    #[must_use]
    pub fn of(error: &IssuerError) -> Self {
        match error {
            IssuerError::Unavailable { retry_after, .. } => {
                let rest = retry_after.map(|rest| i64::try_from(rest.as_micros()).unwrap_or(i64::MAX));
                Self::Failing { rest_us: rest }
            }
            error if error.is_breaker_failure() => Self::Failing { rest_us: None },
            IssuerError::Deferred { .. }
            | IssuerError::Misconfigured { .. }
            | IssuerError::Storage { .. } => Self::Unknown,
            _ => Self::Working,
        }
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl Breaker {
    /// Returns the stable name of the state, for display and filters.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Closed { .. } => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen { .. } => "half_open",
        }
    }

    /// Returns whether the breaker is open or half-open.
    #[must_use]
    pub fn rests(self) -> bool {
        !matches!(self, Self::Closed { .. })
    }

    /// Returns the new state if an order may pass.
    ///
    /// # Errors
    /// The time at which to try again, while the breaker is open or another order is the probe.
    pub fn attempt(self, now_us: i64, limits: &Limits) -> Result<Self, i64> {
        let (until_us, rests) = match self {
            Self::Closed { .. } => return Ok(self),
            Self::Open { until_us, rests } | Self::HalfOpen { until_us, rests } => (until_us, rests),
        };
        // A clock that was set back must not extend the open state from minutes to years.
        let longest = seconds_us(limits.rest_max_seconds).max(PROBE_US);
        if now_us < until_us && until_us.saturating_sub(now_us) <= longest {
            return Err(until_us);
        }
        Ok(Self::HalfOpen { until_us: now_us.saturating_add(PROBE_US), rests })
    }

    /// Returns the new state after an order ended. `random` is between 0 (inclusive) and 1 (exclusive) and spreads the ends of open
    /// states.
    #[must_use]
    pub fn record_outcome(self, health: Health, now_us: i64, limits: &Limits, random: f64) -> Self {
        match (self, health) {
            (_, Health::Working) => Self::default(),
            (Self::HalfOpen { rests, .. }, Health::Unknown) => Self::Open { until_us: now_us, rests },
            (state, Health::Unknown) | (state @ Self::Open { .. }, Health::Failing { .. }) => state,
            (Self::Closed { failures }, Health::Failing { rest_us }) => {
                let failures = failures.saturating_add(1);
                if failures < limits.failures_max.max(1) && rest_us.is_none() {
                    return Self::Closed { failures };
                }
                Self::Open { until_us: open_state_until_us(now_us, 1, rest_us, limits, random), rests: 1 }
            }
            (Self::HalfOpen { rests, .. }, Health::Failing { rest_us }) => {
                let rests = rests.saturating_add(1);
                Self::Open { until_us: open_state_until_us(now_us, rests, rest_us, limits, random), rests }
            }
        }
    }
}

/// Computes the end of the open state. Half of the doubled time is fixed and half is random, so that servers that failed together
/// do not retry together. The open state lasts at least as long as the issuer requested, and at most the maximum.
fn open_state_until_us(
    now_us: i64,
    rests: u32,
    retry_after_us: Option<i64>,
    limits: &Limits,
    random: f64,
) -> i64 {
    let longest = seconds_us(limits.rest_max_seconds);
    let doubled = 1_i64.checked_shl(rests.saturating_sub(1).min(40)).unwrap_or(i64::MAX);
    let bound = seconds_us(limits.rest_seconds).saturating_mul(doubled).min(longest);
    let random = if random.is_finite() { random.clamp(0.0, 1.0) } else { 1.0 };
    let drawn = bound / 2 + ((bound / 2) as f64 * random) as i64;
    now_us.saturating_add(drawn.max(retry_after_us.unwrap_or(0)).min(longest))
}

fn seconds_us(seconds: u32) -> i64 {
    i64::from(seconds) * SECOND_US
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const S: i64 = SECOND_US;

    fn limits() -> Limits {
        Limits { failures_max: 3, rest_seconds: 10, rest_max_seconds: 60, ..Limits::default() }
    }

    fn failing() -> Health {
        Health::Failing { rest_us: None }
    }

    #[test]
    fn breaker_changes_state_on_each_result() {
        let open = |until, rests| Breaker::Open { until_us: until, rests };
        let half = |until, rests| Breaker::HalfOpen { until_us: until, rests };
        let closed = |failures| Breaker::Closed { failures };
        let retry_after = |seconds: i64| Health::Failing { rest_us: Some(seconds * S) };
        // Columns: state, result of an order, next state; at second 100 with the largest random number.
        let table = [
            (closed(0), Health::Working, closed(0)),
            (closed(2), Health::Working, closed(0)),
            (closed(0), failing(), closed(1)),
            (closed(1), failing(), closed(2)),
            (closed(2), failing(), open(110 * S, 1)),
            (closed(0), retry_after(30), open(130 * S, 1)),
            (closed(0), retry_after(3_600), open(160 * S, 1)),
            (closed(2), Health::Unknown, closed(2)),
            (open(150 * S, 1), failing(), open(150 * S, 1)),
            (open(150 * S, 1), Health::Working, closed(0)),
            (open(150 * S, 1), Health::Unknown, open(150 * S, 1)),
            (half(150 * S, 1), Health::Working, closed(0)),
            (half(150 * S, 1), failing(), open(120 * S, 2)),
            (half(150 * S, 2), failing(), open(140 * S, 3)),
            (half(150 * S, 9), failing(), open(160 * S, 10)),
            (half(150 * S, u32::MAX), failing(), open(160 * S, u32::MAX)),
            (half(150 * S, 2), Health::Unknown, open(100 * S, 2)),
        ];
        for (state, health, next) in table {
            assert_eq!(state.record_outcome(health, 100 * S, &limits(), 1.0), next, "{state:?} {health:?}");
        }
    }

    #[test]
    fn breaker_admits_requests_by_its_state() {
        let probe = |rests| Ok(Breaker::HalfOpen { until_us: 100 * S + PROBE_US, rests });
        let table = [
            (Breaker::Closed { failures: 2 }, Ok(Breaker::Closed { failures: 2 })),
            (Breaker::Open { until_us: 101 * S, rests: 1 }, Err(101 * S)),
            (Breaker::Open { until_us: 100 * S, rests: 1 }, probe(1)),
            (Breaker::HalfOpen { until_us: 101 * S, rests: 4 }, Err(101 * S)),
            (Breaker::HalfOpen { until_us: 100 * S, rests: 4 }, probe(4)),
            // The clock was set back by a year.
            (Breaker::Open { until_us: 31_536_000 * S, rests: 1 }, probe(1)),
        ];
        for (state, answer) in table {
            assert_eq!(state.attempt(100 * S, &limits()), answer, "{state:?}");
        }
    }

    #[test]
    fn only_issuer_failures_count_for_the_breaker() {
        let reason = String::new;
        let rest = Some(Duration::from_secs(2));
        let table = [
            (IssuerError::Refused { reason: reason() }, Health::Working),
            (IssuerError::RateLimited { retry_after: None, reason: reason() }, Health::Working),
            (IssuerError::Denied { reason: reason() }, Health::Working),
            (
                IssuerError::Unavailable { reason: reason(), retry_after: rest },
                Health::Failing { rest_us: Some(2 * S) },
            ),
            (IssuerError::TimedOut { stage: "" }, failing()),
            (IssuerError::Lying { reason: reason() }, failing()),
            (IssuerError::Misconfigured { reason: reason() }, Health::Unknown),
            (IssuerError::Storage { reason: reason() }, Health::Unknown),
        ];
        for (error, health) in table {
            assert_eq!(Health::of(&error), health, "{error:?}");
        }
    }

    proptest! {
        #[test]
        fn breaker_pause_is_bounded_above_and_below(
            rests in 0_u32..100, random: f64, retry_after in proptest::option::of(0_i64..i64::MAX), now in 0_i64..1 << 52,
        ) {
            let state = Breaker::HalfOpen { until_us: now, rests };
            let Breaker::Open { until_us, .. } = state.record_outcome(Health::Failing { rest_us: retry_after }, now, &limits(), random)
                else { panic!("a failing issuer opens the breaker") };
            prop_assert!(until_us - now <= 60 * S);
            prop_assert!(until_us - now >= 5 * S);
        }
    }
}
