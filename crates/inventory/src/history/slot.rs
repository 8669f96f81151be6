//! Time slots of measurements.

pub(super) const HOUR_US: i64 = 3_600_000_000;

pub(super) const DAY_US: i64 = 24 * HOUR_US;

/// Length of a slot: the resolution of recent measurements.
pub(super) const SLOT_US: i64 = HOUR_US / 12;

/// Returns the start of the slot of this length that contains a time.
pub(super) fn slot_start(at_us: i64, length_us: i64) -> i64 {
    at_us - at_us.rem_euclid(length_us)
}
