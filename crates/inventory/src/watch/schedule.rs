//! Times of runs. Planned times differ by whole intervals; a jitter derived from a hash prevents watches with the same interval
//! from running at the same time.

use outbound::jitter;
use uuid::Uuid;

use crate::tables::watches::{WatchRow, WatchSettings, WatchTimes};

/// Returns the first planned time after `after_us`. Missed runs are not repeated: the next run covers them.
pub(super) fn next(
    id: Uuid,
    planned_at_us: i64,
    interval_us: i64,
    jitter_us: i64,
    after_us: i64,
) -> WatchTimes {
    let interval = interval_us.max(1);
    let planned = if planned_at_us > after_us {
        planned_at_us
    } else {
        let missed = after_us.saturating_sub(planned_at_us) / interval;
        planned_at_us.saturating_add((missed + 1).saturating_mul(interval))
    };
    at(id, planned, jitter_us)
}

/// Returns the times of a watch after a change of its settings. The times do not apply to a run in progress, which plans the next
/// run at its end. A new interval or jitter counts from the current planned time; a shorter interval moves this time closer.
pub(super) fn changed(row: &WatchRow, to: &WatchSettings, now_us: i64) -> WatchTimes {
    let same = (row.settings.interval_us, row.settings.jitter_us) == (to.interval_us, to.jitter_us);
    if same || row.run.is_some() {
        return row.times;
    }
    let planned = row.times.planned_at_us.min(now_us.saturating_add(to.interval_us));
    at(row.id, planned, to.jitter_us)
}

fn at(id: Uuid, planned_at_us: i64, jitter_us: i64) -> WatchTimes {
    let next_run_at_us =
        planned_at_us.saturating_add(jitter::by_hash(id.as_bytes(), planned_at_us, jitter_us));
    WatchTimes { planned_at_us, next_run_at_us }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn missed_runs_are_made_up_by_one_run() {
        let next = |planned, after| next(Uuid::nil(), planned, 10, 0, after).planned_at_us;
        for (planned, after, wanted) in [
            (100, 100, 110),
            (100, 109, 110),
            (100, 110, 120),
            (100, 205, 210),
            (100, 99, 100),
            (100, 50, 100),
        ] {
            assert_eq!(next(planned, after), wanted, "planned {planned}, after {after}");
        }
    }

    proptest! {
        #[test]
        fn next_run_is_on_the_interval_grid_plus_bounded_jitter(
            id: u128, planned in 0..1_i64 << 40, interval in 1..1_i64 << 30, jitter in 0..1_i64 << 30, late in 0..1_i64 << 40,
        ) {
            let after = planned + late;
            let times = next(Uuid::from_u128(id), planned, interval, jitter, after);
            prop_assert_eq!((times.planned_at_us - planned) % interval, 0);
            prop_assert!(times.planned_at_us > after && times.planned_at_us <= after + interval);
            let late = times.next_run_at_us - times.planned_at_us;
            prop_assert!(late == 0 || (0..jitter).contains(&late));
        }
    }
}
