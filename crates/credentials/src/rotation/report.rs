//! The counters of rotation.

/// Counters of rotation rounds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RotationReport {
    /// Values made again.
    pub rotated: u64,
    /// Steps of authorities that change.
    pub steps: u64,
    /// Rotations that did not happen.
    pub failed: u64,
    /// Calls of hooks that were acknowledged.
    pub told: u64,
    /// Calls of hooks that were not.
    pub untold: u64,
    /// How long the longest due has been due, s, in the last round.
    pub behind_s: i64,
    /// Rounds that ended early: the database was away.
    pub broken: u64,
}

impl RotationReport {
    pub(super) fn add(&mut self, round: &Self) {
        self.rotated += round.rotated;
        self.steps += round.steps;
        self.failed += round.failed;
        self.told += round.told;
        self.untold += round.untold;
        self.behind_s = round.behind_s;
        self.broken += round.broken;
    }
}
