//! How much one round does, and the backoff after failures.

/// Pages of events, names and due ones that one round works through, so that none waits for another.
pub(super) const PAGES: usize = 16;
/// First wait after a failure, µs; it doubles.
const AGAIN_US: i64 = 60_000_000;
/// Longest wait after a failure, µs: a day.
pub(super) const AGAIN_MAX_US: i64 = 86_400_000_000;

/// The wait after so many failures in a row, µs.
pub(super) fn backoff_us(failures: i64) -> i64 {
    let doubled = u32::try_from(failures.clamp(0, 20)).unwrap_or(20);
    AGAIN_US.saturating_mul(1 << doubled).min(AGAIN_MAX_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_day() {
        let minutes: Vec<i64> = [0, 1, 2, 10, 11, 63].iter().map(|n| backoff_us(*n) / 60_000_000).collect();
        assert_eq!(minutes, [1, 2, 4, 1_024, 1_440, 1_440]);
    }
}
