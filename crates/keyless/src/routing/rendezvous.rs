//! Rendezvous hashing: an order of nodes that all nodes find alike.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::node::NodeId;

/// Where one node comes for another one: in an order that all find alike, of nodes that were built alike.
pub(super) fn rank(own: NodeId, other: NodeId) -> u64 {
    let mut hasher = DefaultHasher::new();
    (own, other).hash(&mut hasher);
    hasher.finish()
}
