//! State that the router shares with its connections and keys: nodes, links, limits, metrics.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustls::ClientConfig;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::links::Links;
use super::metrics::RoutingMetrics;
use super::options::RouterOptions;
use super::peer::Peer;
use crate::budget::Budget;
use crate::node::{Member, NodeId};

pub(super) struct RouterState {
    pub(super) options: RouterOptions,
    /// This node. It receives no routed requests.
    pub(super) own: NodeId,
    pub(super) tls: RwLock<Arc<ClientConfig>>,
    pub(super) members: RwLock<HashMap<NodeId, Member>>,
    pub(super) links: Mutex<Links>,
    /// A copy of the peers for forwarding requests, because an assignment may lock `links` for a few milliseconds.
    pub(super) assigned_peers: RwLock<Arc<AssignedPeers>>,
    pub(super) budget: Budget,
    pub(super) metrics: RoutingMetrics,
    /// Notified when the reachability of a peer changes.
    pub(super) changed: Arc<Notify>,
    /// Notified when connections must be assigned again.
    pub(super) assignment_due: Arc<Notify>,
    pub(super) is_assigning: AtomicBool,
    pub(super) tracker: TaskTracker,
    pub(super) stopping: CancellationToken,
}

/// The peers after the last assignment of connections.
#[derive(Default)]
pub(super) struct AssignedPeers {
    pub(super) peers: HashMap<NodeId, Arc<Peer>>,
}

impl RouterState {
    pub(super) fn change_notifiers(&self) -> (Arc<Notify>, Arc<Notify>) {
        (Arc::clone(&self.changed), Arc::clone(&self.assignment_due))
    }

    /// Returns the destinations that this node wants to reach through `node`: another node of the pod, or the helper of a detour.
    pub(super) fn wanted_of(&self, node: NodeId) -> Vec<NodeId> {
        self.links.lock().wanted_of(node)
    }

    /// Records which nodes a relay reaches, with round-trip times.
    pub(super) fn record_reachable(&self, node: NodeId, reached: Option<HashMap<NodeId, Duration>>) {
        if self.links.lock().record_reachable(node, reached) {
            self.assignment_due.notify_one();
        }
    }

    /// Records that a relay has lost its path to a node.
    pub(super) fn record_lost_path(&self, through: NodeId, to: NodeId) {
        self.links.lock().record_lost_path(through, to);
    }
}

impl Drop for RouterState {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}
