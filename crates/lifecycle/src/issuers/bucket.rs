//! The token bucket: how often an issuer may be asked. The generic cell rate algorithm, one number of state.

use crate::issuers::Limits;

const MINUTE_US: i64 = 60_000_000;

/// How full the bucket is: the moment at which it will have run empty, microseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Bucket {
    empty_at_us: i64,
}

impl Bucket {
    /// Takes one token; `Err` is how long until there is one, microseconds.
    pub(crate) fn take(&mut self, now_us: i64, limits: &Limits) -> Result<(), i64> {
        let Some(per_minute) = limits.per_minute else { return Ok(()) };
        let apart = MINUTE_US / i64::from(per_minute.max(1));
        let allowance = apart.saturating_mul(i64::from(limits.burst.max(1)) - 1);
        let ahead = self.empty_at_us.saturating_sub(now_us).max(0);
        // More than the bucket can hold: the clock was set back.
        let ahead = if ahead > allowance.saturating_add(apart) { 0 } else { ahead };
        if ahead > allowance {
            return Err(ahead - allowance);
        }
        self.empty_at_us = now_us.saturating_add(ahead).saturating_add(apart);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(per_minute: u32, burst: u32) -> Limits {
        Limits { per_minute: Some(per_minute), burst, ..Limits::default() }
    }

    #[test]
    fn a_burst_then_the_rate() {
        let limits = limits(6, 3);
        let mut bucket = Bucket::default();
        let now = 1_000 * MINUTE_US;
        for _ in 0..3 {
            assert_eq!(bucket.take(now, &limits), Ok(()));
        }
        assert_eq!(bucket.take(now, &limits), Err(10_000_000));
        assert_eq!(bucket.take(now + 9_999_999, &limits), Err(1));
        assert_eq!(bucket.take(now + 10_000_000, &limits), Ok(()));
        assert_eq!(bucket.take(now + 10_000_000, &limits), Err(10_000_000));
        // Full again after a minute, and no fuller.
        let taken = (0..10).filter(|_| bucket.take(now + 10 * MINUTE_US, &limits).is_ok()).count();
        assert_eq!(taken, 3);
    }

    #[test]
    fn no_limit_and_a_clock_set_back() {
        let mut bucket = Bucket::default();
        let none = Limits { per_minute: None, ..Limits::default() };
        assert!((0..1_000).all(|_| bucket.take(0, &none).is_ok()));
        let limits = limits(1, 1);
        assert_eq!(bucket.take(1_000_000 * MINUTE_US, &limits), Ok(()));
        assert_eq!(bucket.take(MINUTE_US, &limits), Ok(()), "a bucket never lasts longer than it is deep");
    }
}
