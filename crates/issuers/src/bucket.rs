//! How often an issuer may be asked: its limits as a rate (`outbound::rate`).

use outbound::rate::Rate;

use crate::config::Limits;

/// How full the bucket is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Bucket(outbound::rate::Bucket);

impl Bucket {
    /// Takes one token; `Err` is how long until there is one, microseconds.
    pub(crate) fn take(&mut self, now_us: i64, limits: &Limits) -> Result<(), i64> {
        let Some(per_minute) = limits.per_minute else { return Ok(()) };
        self.0.take(now_us, Rate::per_minute(per_minute).with_burst(limits.burst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_US: i64 = 60_000_000;

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
