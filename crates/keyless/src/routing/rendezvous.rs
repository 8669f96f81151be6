//! Rendezvous hashing: all nodes compute the same order of nodes.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::node::NodeId;

/// The rank of `other` for `own`. All nodes of one version compute the same.
pub(super) fn rank(own: NodeId, other: NodeId) -> u64 {
    let mut hasher = DefaultHasher::new();
    (own, other).hash(&mut hasher);
    hasher.finish()
}
