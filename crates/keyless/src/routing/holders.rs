//! Nodes that can use certain keys, and the nearest of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;

use super::options::TRIES_MAX;
use super::peer::Peer;
use super::rank::Rank;
use crate::node::{Member, NodeId};

/// Nodes that can use certain keys. All keys of one policy share them.
#[derive(Debug, Default)]
pub struct Holders {
    /// Node IDs in ascending order.
    nodes: RwLock<Vec<NodeId>>,
    /// Peers among `nodes` to which this node sends requests.
    peers: RwLock<Arc<[Arc<Peer>]>>,
    /// Nodes that reported that they do not have the key. Each is tried last until the given time.
    lacking: RwLock<HashMap<NodeId, Instant>>,
}

/// Time for which a node without the key is tried last. A node that has joined loads its keys within a few seconds.
const LACKING_FOR: Duration = Duration::from_secs(1);

impl Holders {
    pub(super) fn change(&self, mut nodes: Vec<NodeId>) {
        nodes.sort_unstable();
        *self.nodes.write() = nodes;
    }

    /// Returns whether any of these nodes can use the keys.
    pub(super) fn has_any(&self, nodes: &HashSet<NodeId>) -> bool {
        let own = self.nodes.read();
        nodes.iter().any(|node| own.binary_search(node).is_ok())
    }

    /// Returns the members that can use the keys.
    pub(super) fn living<'m>(&self, members: &'m HashMap<NodeId, Member>) -> Vec<&'m Member> {
        self.nodes.read().iter().filter_map(|node| members.get(node)).collect()
    }

    pub(super) fn linked(&self) -> Arc<[Arc<Peer>]> {
        Arc::clone(&self.peers.read())
    }

    /// Records that a node does not have the key.
    pub(super) fn lacks(&self, node: NodeId) {
        let now = Instant::now();
        let mut lacking = self.lacking.write();
        lacking.retain(|_, until| *until > now);
        lacking.insert(node, now + LACKING_FOR);
    }

    /// Returns whether the node recently reported that it lacks the key. The map is usually empty.
    fn is_lacking(&self, node: NodeId) -> bool {
        let lacking = self.lacking.read();
        !lacking.is_empty() && lacking.get(&node).is_some_and(|until| *until > Instant::now())
    }

    pub(super) fn set_linked(&self, peers: Arc<[Arc<Peer>]>) {
        *self.peers.write() = peers;
    }

    /// Returns up to [`TRIES_MAX`] reachable nodes, nearest first. Takes a few nanoseconds for each holder.
    pub(super) fn nearest(&self) -> Vec<Arc<Peer>> {
        let peers = self.linked();
        let mut nearest: Vec<(Rank, &Arc<Peer>)> = Vec::with_capacity(TRIES_MAX + 1);
        for peer in peers.iter() {
            let Some(mut rank) = peer.rank() else { continue };
            rank.is_lacking = self.is_lacking(peer.member().id);
            let at = nearest.partition_point(|(other, _)| *other <= rank);
            if at < TRIES_MAX {
                nearest.insert(at, (rank, peer));
                nearest.truncate(TRIES_MAX);
            }
        }
        nearest.into_iter().map(|(_, peer)| Arc::clone(peer)).collect()
    }

    /// Returns whether requests should wait for a holder: a connection is being opened, or a relay may reach a holder.
    pub(super) fn may_come(&self) -> bool {
        self.peers.read().iter().any(|peer| peer.may_come())
    }
}
