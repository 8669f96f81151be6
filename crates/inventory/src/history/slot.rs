//! Stretches of time that measurements are kept by.

pub(super) const HOUR_US: i64 = 3_600_000_000;

pub(super) const DAY_US: i64 = 24 * HOUR_US;

/// A stretch of time with a sketch of its own: as fine as the last hour is known.
pub(super) const SLOT_US: i64 = HOUR_US / 12;

/// The start of the stretch of this length that a time is in.
pub(super) fn start_of(at_us: i64, length_us: i64) -> i64 {
    at_us - at_us.rem_euclid(length_us)
}
