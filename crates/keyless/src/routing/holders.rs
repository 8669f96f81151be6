//! The nodes that can use some keys, and which of them are the nearest.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;

use super::options::TRIES_MAX;
use super::peer::Peer;
use super::rank::Rank;
use crate::node::{Member, NodeId};

/// The nodes that can use some keys: those of one policy share them.
#[derive(Debug, Default)]
pub struct Holders {
    /// In order.
    nodes: RwLock<Vec<NodeId>>,
    /// Connected nodes.
    peers: RwLock<Arc<[Arc<Peer>]>>,
    /// Nodes that answered that they do not hold the key, and until when they are tried last.
    lacking: RwLock<HashMap<NodeId, Instant>>,
}

/// For so long: a node that has joined has its keys within a few seconds.
const LACKING_FOR: Duration = Duration::from_secs(1);

impl Holders {
    pub(super) fn change(&self, mut nodes: Vec<NodeId>) {
        nodes.sort_unstable();
        *self.nodes.write() = nodes;
    }

    /// Whether one of these can use the keys.
    pub(super) fn has_any(&self, nodes: &HashSet<NodeId>) -> bool {
        let own = self.nodes.read();
        nodes.iter().any(|node| own.binary_search(node).is_ok())
    }

    /// The peers of all nodes that are alive.
    pub(super) fn living<'m>(&self, members: &'m HashMap<NodeId, Member>) -> Vec<&'m Member> {
        self.nodes.read().iter().filter_map(|node| members.get(node)).collect()
    }

    pub(super) fn linked(&self) -> Arc<[Arc<Peer>]> {
        Arc::clone(&self.peers.read())
    }

    /// This one does not hold the key, yet or any more.
    pub(super) fn lacks(&self, node: NodeId) {
        let now = Instant::now();
        let mut lacking = self.lacking.write();
        lacking.retain(|_, until| *until > now);
        lacking.insert(node, now + LACKING_FOR);
    }

    /// Whether it said so lately. Hardly ever anybody has.
    fn is_lacking(&self, node: NodeId) -> bool {
        let lacking = self.lacking.read();
        !lacking.is_empty() && lacking.get(&node).is_some_and(|until| *until > Instant::now())
    }

    pub(super) fn set_linked(&self, peers: Arc<[Arc<Peer>]>) {
        *self.peers.write() = peers;
    }

    /// Up to [`TRIES_MAX`] that can be asked, the nearest first. Some nanoseconds for each holder.
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

    /// Whether a holder that is unavailable now may become available soon.
    pub(super) fn may_come(&self) -> bool {
        self.peers.read().iter().any(|peer| peer.may_come())
    }
}
