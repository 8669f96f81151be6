//! Relaying for other nodes: reports which nodes are reachable, and forwards requests. Nodes of the own site share connections;
//! nodes of other sites use detours.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::attempt::{Attempt, Path, RequestContext};
use super::error::RelayError;
use super::pod::WANTED_MAX;
use super::router::Router;
use crate::native::proto::SignRequest;
use crate::node::NodeId;
use crate::tenant::Identity;

impl Router {
    /// Records the destinations that another node wants to reach through this node. Returns the destinations that this node
    /// reaches, with round-trip times; `None` if the caller is not a node. Ignores entries beyond [`WANTED_MAX`].
    pub(crate) fn record_wanted_nodes(
        &self,
        identity: &Identity,
        wanted: impl Iterator<Item = NodeId>,
    ) -> Option<Vec<(NodeId, Duration)>> {
        let inner = &self.0;
        let node = self.requesting_node(identity)?;
        let wanted: BTreeSet<NodeId> = wanted.take(WANTED_MAX).collect();
        let (is_new, reached) = inner.links.lock().renew_lease(node, wanted, Instant::now());
        if is_new {
            inner.assignment_due.notify_one();
        }
        Some(reached)
    }

    /// Returns the other node that presented this certificate.
    pub(crate) fn requesting_node(&self, identity: &Identity) -> Option<NodeId> {
        let (node, _) = identity.node().filter(|_| identity.is_node() && self.knows(identity))?;
        Some(node)
    }

    /// Forwards a request to this node, only on the direct connection.
    ///
    /// # Errors
    /// [`RelayError`], at the latest shortly after the deadline.
    ///
    /// # Cancellation
    /// Dropping the future cancels the request.
    pub(crate) async fn relay(
        &self,
        node: NodeId,
        request: SignRequest,
        context: &RequestContext<'_>,
    ) -> Result<Vec<u8>, RelayError> {
        let peer = self.0.assigned_peers.read().peers.get(&node).cloned().ok_or(RelayError::NoConnection)?;
        let margin = self.0.options.margin;
        let required_time = peer.direct_round_trip().ok_or(RelayError::NoConnection)? + margin;
        let request = context.peer_request(request, margin);
        if request.time_left <= required_time {
            return Err(RelayError::Late);
        }
        self.0.metrics.relayed();
        Ok(Attempt::run(peer, request, Path::Direct, context, "relayed").await.reply?)
    }
}
