//! Heartbeats of nodes, collected so that one transaction writes all heartbeats of a round.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use uuid::Uuid;

use crate::tables::NodeLease;
use crate::timing::LEASE;
use crate::work::MEASURED_MAX;

/// Heartbeats that are not yet written: at most one entry per node. Only enrolled nodes have entries.
#[derive(Default)]
pub(super) struct PendingHeartbeats(Mutex<State>);

#[derive(Default)]
struct State {
    /// End of each node's lease, in µs since 1970-01-01 UTC, that is not yet in the database.
    pending: BTreeMap<Uuid, i64>,
    /// Round-trip times that each node reported to this server.
    measured: HashMap<Uuid, BTreeMap<Uuid, u32>>,
}

impl PendingHeartbeats {
    pub(super) fn record(&self, node: Uuid, at_us: i64, measured: BTreeMap<Uuid, u32>) {
        let until = at_us.saturating_add(LEASE.as_micros() as i64);
        let mut state = self.0.lock();
        state.pending.insert(node, until);
        if !measured.is_empty() {
            state.measured.insert(node, nearest(measured));
        }
    }

    /// Returns the leases to write now, sorted, so that two servers do not deadlock.
    pub(super) fn take(&self) -> Vec<NodeLease> {
        let pending = std::mem::take(&mut self.0.lock().pending);
        pending.into_iter().map(|(node, until_us)| NodeLease { node, until_us }).collect()
    }

    /// Returns leases to the queue after a failed write. A newer lease of the same node takes precedence.
    pub(super) fn requeue(&self, leases: Vec<NodeLease>) {
        let mut state = self.0.lock();
        for lease in leases {
            state.pending.entry(lease.node).or_insert(lease.until_us);
        }
    }

    pub(super) fn forget(&self, node: Uuid) {
        let mut state = self.0.lock();
        state.pending.remove(&node);
        state.measured.remove(&node);
    }

    /// Returns the round-trip times that a node last reported to this server.
    pub(super) fn measured(&self, node: Uuid) -> BTreeMap<Uuid, u32> {
        self.0.lock().measured.get(&node).cloned().unwrap_or_default()
    }
}

fn nearest(measured: BTreeMap<Uuid, u32>) -> BTreeMap<Uuid, u32> {
    let mut all: Vec<_> = measured.into_iter().collect();
    all.sort_unstable_by_key(|(_, milliseconds)| *milliseconds);
    all.truncate(MEASURED_MAX);
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_returned_after_a_failed_write_keep_newer_ones() {
        let beats = PendingHeartbeats::default();
        let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
        beats.record(a, 0, BTreeMap::new());
        beats.record(b, 0, BTreeMap::new());
        let taken = beats.take();
        assert_eq!(taken.len(), 2);
        beats.record(a, 7, BTreeMap::new());
        beats.requeue(taken);
        let lease = LEASE.as_micros() as i64;
        let second: Vec<_> = beats.take().into_iter().map(|lease| (lease.node, lease.until_us)).collect();
        assert_eq!(second, [(a, lease + 7), (b, lease)]);
        assert!(beats.take().is_empty());
    }

    #[test]
    fn measured_round_trip_times_are_limited_to_the_nearest_nodes() {
        let beats = PendingHeartbeats::default();
        let node = Uuid::now_v7();
        beats.record(node, 0, (0..500_u32).map(|far| (Uuid::now_v7(), far)).collect());
        let stored = beats.measured(node);
        assert_eq!(stored.len(), MEASURED_MAX);
        assert!(stored.values().all(|far| (*far as usize) < MEASURED_MAX), "the nearest");
        beats.forget(node);
        assert!(beats.measured(node).is_empty());
    }
}
