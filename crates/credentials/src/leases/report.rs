//! Counters of lease revocation.

/// Counters of the rounds that revoke leases, for one round or for all rounds of a process.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LeaseReport {
    /// Leases whose roles were dropped.
    pub revoked: u64,
    /// Failed attempts to revoke a lease.
    pub failed: u64,
    /// Rounds that ended early because of an error of the store.
    pub broken: u64,
    /// Time by which the oldest due lease was late in the last round, µs.
    pub late_us: i64,
}

impl LeaseReport {
    /// Adds the counts of a round.
    pub(super) fn add(&mut self, round: &Self) {
        self.revoked += round.revoked;
        self.failed += round.failed;
        self.broken += round.broken;
        self.late_us = round.late_us;
    }
}
