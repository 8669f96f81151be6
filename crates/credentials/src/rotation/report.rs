//! Counters of completed and failed credential rotations and hook calls.

/// Counters of one rotation round, or of all rotation rounds of this process.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RotationReport {
    /// Number of rotated values.
    pub rotated: u64,
    /// Completed steps of CA replacements.
    pub steps: u64,
    /// Number of failed rotations.
    pub failed: u64,
    /// Hook calls that were acknowledged.
    pub told: u64,
    /// Hook calls that failed.
    pub undelivered: u64,
    /// Time since the oldest pending rotation became due, s, in the last round.
    pub behind_s: i64,
    /// Rounds that ended early because the database was unavailable.
    pub broken: u64,
}

impl RotationReport {
    pub(super) fn add(&mut self, round: &Self) {
        self.rotated += round.rotated;
        self.steps += round.steps;
        self.failed += round.failed;
        self.told += round.told;
        self.undelivered += round.undelivered;
        self.behind_s = round.behind_s;
        self.broken += round.broken;
    }
}
