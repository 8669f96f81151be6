//! Detection of gaps in the heartbeats that this server receives. After a gap, expired leases do not count.

use std::time::Duration;

use crate::timing::{AWAY_PAUSE_MAX, LEASE, ROUND};

/// Time since the last round after which a round is late. Heartbeats may then be late, too: they are processed before the next
/// round.
const LATE: Duration = Duration::from_millis(2 * ROUND.as_millis() as u64);
/// Waiting time after a gap: by then all nodes have retried and sent heartbeats.
const GRACE: Duration = AWAY_PAUSE_MAX.saturating_add(LEASE);

/// Time since which this server has received heartbeats without a gap. After a gap (the server was stopped, or the database was
/// unreachable) all leases are expired. No node may be recorded as gone before it had time to send a heartbeat.
#[derive(Debug, Default)]
pub(super) struct HeartbeatContinuity {
    since_us: i64,
    last_us: i64,
    /// Whether the last round was late and therefore recorded no node as gone. The next round records nodes as gone even if it is
    /// late.
    was_passed_over: bool,
}

impl HeartbeatContinuity {
    /// Records a round. Returns whether expired leases count now.
    pub(crate) fn round(&mut self, now_us: i64) -> bool {
        let lease = LEASE.as_micros() as i64;
        if !(self.last_us..self.last_us + lease).contains(&now_us) {
            self.since_us = now_us;
        }
        let is_late = now_us - self.last_us >= LATE.as_micros() as i64;
        self.was_passed_over = is_late && !self.was_passed_over;
        self.last_us = now_us;
        now_us - self.since_us >= GRACE.as_micros() as i64 && !self.was_passed_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const BEGIN: i64 = 1_000 * SECOND;
    const GRACE_US: i64 = GRACE.as_micros() as i64;

    /// Runs regular rounds between two times. Returns the result of the last one.
    fn rounds(steadiness: &mut HeartbeatContinuity, from: i64, to: i64) -> bool {
        let every = ROUND.as_micros() as usize;
        (from..=to).step_by(every).map(|at| steadiness.round(at)).last().unwrap()
    }

    #[test]
    fn nodes_are_not_declared_gone_within_the_grace_period_after_a_gap() {
        let mut steadiness = HeartbeatContinuity::default();
        assert!(!steadiness.round(BEGIN), "just started");
        assert!(!rounds(&mut steadiness, BEGIN, BEGIN + GRACE_US - 1));
        assert!(rounds(&mut steadiness, BEGIN + GRACE_US, BEGIN + 8 * SECOND));
        let restart = BEGIN + 20 * SECOND;
        assert!(!rounds(&mut steadiness, restart, restart + GRACE_US - 1), "it was stopped");
        assert!(rounds(&mut steadiness, restart + GRACE_US, restart + 8 * SECOND));
        assert!(!steadiness.round(BEGIN), "a clock set back");
    }

    #[test]
    fn late_round_declares_no_node_gone_but_the_next_one_does() {
        let (late, every) = (LATE.as_micros() as i64, ROUND.as_micros() as i64);
        let mut steadiness = HeartbeatContinuity::default();
        assert!(rounds(&mut steadiness, BEGIN, BEGIN + 8 * SECOND));
        assert!(steadiness.round(BEGIN + 8 * SECOND + late - 1), "a little late");
        let at = BEGIN + 8 * SECOND + 2 * late;
        assert!(!steadiness.round(at), "what came meanwhile may not have been heard");
        assert!(steadiness.round(at + every));
        // If all rounds are late, every second one counts.
        assert!(!steadiness.round(at + every + late));
        assert!(steadiness.round(at + every + 2 * late));
    }
}
