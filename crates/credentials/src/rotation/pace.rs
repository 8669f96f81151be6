//! Work limits of one rotation round, and the backoff after failures.

/// Maximum pages of events, of names, of due values and of hook calls in one rotation round, so that one kind of work does not
/// delay the others.
pub(super) const PAGES: usize = 16;
/// First delay after a failure, µs. It doubles with each failure.
const RETRY_MIN_US: i64 = 60_000_000;
/// Maximum delay after a failure, µs: a day.
pub(super) const RETRY_MAX_US: i64 = 86_400_000_000;

/// Returns the delay after this many consecutive failures, µs.
pub(super) fn backoff_us(failures: i64) -> i64 {
    let doubled = u32::try_from(failures.clamp(0, 20)).unwrap_or(20);
    RETRY_MIN_US.saturating_mul(1 << doubled).min(RETRY_MAX_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_backoff_doubles_up_to_one_day() {
        let minutes: Vec<i64> = [0, 1, 2, 10, 11, 63].iter().map(|n| backoff_us(*n) / 60_000_000).collect();
        assert_eq!(minutes, [1, 2, 4, 1_024, 1_440, 1_440]);
    }
}
