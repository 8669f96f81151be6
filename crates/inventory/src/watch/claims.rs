//! Leases of a node: runs and parts of runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::tables::watch_parts::PartRow;

/// Duration of a lease without renewal. This is twelve renewal intervals, so that a pause of the process or a failover of the
/// database loses no run.
pub(super) const LEASE: Duration = Duration::from_secs(60);

/// A run that a node has claimed.
#[derive(Clone, Copy)]
pub(super) struct RunClaim {
    pub(super) id: Uuid,
    pub(super) node: Uuid,
    pub(super) claims: i64,
}

/// A node and the parts that it has claimed.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) id: Uuid,
    pub(super) parts: LeasedParts,
}

/// Parts that this node is scanning. Their leases are renewed until the scan of the part ends.
#[derive(Clone, Default)]
pub(super) struct LeasedParts(Arc<Mutex<HashMap<(Uuid, u64), (PartRow, CancellationToken)>>>);

/// A part that this node is scanning; removed from [`LeasedParts`] on drop.
pub(super) struct LeasedPart {
    all: LeasedParts,
    row: PartRow,
    pub(super) stop: CancellationToken,
}

impl LeasedParts {
    pub(super) fn hold(&self, row: PartRow, within: &CancellationToken) -> LeasedPart {
        let stop = within.child_token();
        self.0.lock().insert((row.scan, row.part), (row, stop.clone()));
        LeasedPart { all: self.clone(), row, stop }
    }

    pub(super) fn rows(&self) -> Vec<PartRow> {
        self.0.lock().values().map(|(row, _)| *row).collect()
    }

    /// Cancels each part in `requested` that is not in `renewed`: another node has the part, or the part is no longer needed.
    pub(super) fn keep(&self, requested: &[PartRow], renewed: &[(Uuid, u64)]) {
        let leased = self.0.lock();
        for row in requested.iter().filter(|row| !renewed.contains(&(row.scan, row.part))) {
            if let Some((now, stop)) = leased.get(&(row.scan, row.part))
                && now.claims == row.claims
            {
                stop.cancel();
            }
        }
    }
}

impl Drop for LeasedPart {
    fn drop(&mut self) {
        let mut leased = self.all.0.lock();
        let key = (self.row.scan, self.row.part);
        if leased.get(&key).is_some_and(|(row, _)| row.claims == self.row.claims) {
            leased.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(part: u64, parts: u64) -> PartRow {
        PartRow { scan: Uuid::nil(), part, parts, watch: Uuid::nil(), claims: 1 }
    }

    #[test]
    fn parts_whose_lease_was_not_renewed_are_cancelled() {
        let (leased, stop) = (LeasedParts::default(), CancellationToken::new());
        let (one, two) = (leased.hold(part(0, 3), &stop), leased.hold(part(1, 3), &stop));
        let requested = leased.rows();
        let late = leased.hold(part(2, 3), &stop);
        leased.keep(&requested, &[(Uuid::nil(), 0)]);
        let cancelled = [&one, &two, &late].map(|part| part.stop.is_cancelled());
        assert_eq!(cancelled, [false, true, false]);
        drop((one, two, late));
        assert!(leased.rows().is_empty());
    }
}
