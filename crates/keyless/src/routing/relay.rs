//! What other nodes of the own site ask of this one: to reach a node for them, and to pass requests on to it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attempt::{Asking, attempted};
use super::error::RelayError;
use super::pod::WANTED_MAX;
use super::router::Router;
use crate::native::proto::SignRequest;
use crate::node::{Member, NodeId};
use crate::tenant::Identity;

impl Router {
    /// What a node of the own site wants to reach through this one; what this one reaches, and how far that is. `None` for one
    /// that is of no such site. What is beyond [`WANTED_MAX`] is passed over.
    pub(crate) fn reaches_for(
        &self,
        identity: &Identity,
        wanted: impl Iterator<Item = NodeId>,
    ) -> Option<Vec<(NodeId, Duration)>> {
        let inner = &self.0;
        let node = self.neighbour(identity)?;
        let wanted: BTreeSet<NodeId> = wanted.take(WANTED_MAX).collect();
        let (is_new, reached) = inner.links.lock().asked(node, wanted, Instant::now());
        if is_new {
            inner.unsettled.notify_one();
        }
        Some(reached)
    }

    /// The node of the own site, another one, that presented this certificate.
    pub(crate) fn neighbour(&self, identity: &Identity) -> Option<NodeId> {
        let (node, _) = identity.node().filter(|_| identity.is_node() && self.knows(identity))?;
        let settled = Arc::clone(&self.0.settled.read());
        let members = self.0.members.read();
        let is_here = |member: &&Member| settled.site.as_deref() == Some(member.site.as_str());
        members.get(&node).filter(is_here).map(|member| member.id)
    }

    /// Passes a request on to this node, over the own connection to it alone.
    ///
    /// # Errors
    /// [`RelayError`], never later than shortly after the deadline.
    ///
    /// # Cancellation
    /// Dropping the future takes back what is under way.
    pub(crate) async fn relay(
        &self,
        node: NodeId,
        request: SignRequest,
        asking: &Asking<'_>,
    ) -> Result<Vec<u8>, RelayError> {
        let peer = self.0.settled.read().peers.get(&node).cloned().ok_or(RelayError::NoWay)?;
        let margin = self.0.options.margin;
        let way = peer.own_way().ok_or(RelayError::NoWay)? + margin;
        let request = asking.outgoing(request, margin);
        let patience = request.patience;
        if patience <= way {
            return Err(RelayError::Late);
        }
        self.0.metrics.relayed();
        let asked = peer.ask_itself(request);
        Ok(attempted(&peer, asked, asking, "relayed", patience).await?)
    }
}
