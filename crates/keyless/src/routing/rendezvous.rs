//! Rendezvous hashing: all nodes compute the same order of nodes.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::node::NodeId;

/// Returns the rank of `other` for `own`. All nodes of the same version compute the same rank.
pub(super) fn rank(own: NodeId, other: NodeId) -> u64 {
    let mut hasher = DefaultHasher::new();
    (own, other).hash(&mut hasher);
    hasher.finish()
}
