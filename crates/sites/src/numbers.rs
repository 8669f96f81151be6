//! The last relevant change of each node, so that a heartbeat's response says whether there are updates.

use std::collections::HashMap;

use parking_lot::RwLock;
use uuid::Uuid;

/// Change numbers as of the last view update. At most one entry per node, 24 bytes each.
#[derive(Default)]
pub(super) struct Numbers(RwLock<State>);

#[derive(Default)]
struct State {
    /// Number of the last change that concerns all nodes.
    common: i64,
    /// Number of the last change of each node's wrapped policy keys.
    own: HashMap<Uuid, i64>,
    /// Number of the last processed change of wrapped policy keys.
    seen: i64,
}

impl Numbers {
    /// Returns the number of the last processed change of wrapped policy keys. 0 before the first update.
    pub(super) fn seen(&self) -> i64 {
        self.0.read().seen
    }

    /// Starts at the change `last`: all nodes request updates once, and older changes of wrapped policy keys are skipped.
    pub(super) fn begin(&self, last: i64) {
        let mut state = self.0.write();
        state.common = last;
        state.seen = last;
    }

    /// Records the last common change, and the last change of the wrapped policy keys of each node.
    pub(super) fn take(&self, common: i64, own: Vec<(Uuid, i64)>) {
        let mut state = self.0.write();
        state.common = state.common.max(common);
        for (node, changed) in own {
            state.seen = state.seen.max(changed);
            state.own.insert(node, changed);
        }
    }

    /// Returns the number of the last change that this node must read.
    pub(super) fn of(&self, node: Uuid) -> i64 {
        let state = self.0.read();
        state.own.get(&node).map_or(state.common, |own| state.common.max(*own))
    }

    pub(super) fn forget(&self, node: Uuid) {
        self.0.write().own.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_number_of_a_wrap_affects_its_node_only() {
        let (numbers, a, b) = (Numbers::default(), Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!((numbers.seen(), numbers.of(a)), (0, 0));
        numbers.begin(7);
        assert_eq!((numbers.seen(), numbers.of(a), numbers.of(b)), (7, 7, 7));
        numbers.take(5, vec![(a, 9)]);
        assert_eq!((numbers.seen(), numbers.of(a), numbers.of(b)), (9, 9, 7));
        numbers.take(12, vec![(b, 13)]);
        assert_eq!((numbers.seen(), numbers.of(a), numbers.of(b)), (13, 12, 13));
        numbers.forget(b);
        assert_eq!(numbers.of(b), 12);
    }
}
