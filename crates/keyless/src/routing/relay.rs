//! Relaying for other nodes of the own site: which nodes this node reaches for them, and forwarding their requests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attempt::{Attempt, Path, RequestContext};
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
        let (is_new, reached) = inner.links.lock().renew_lease(node, wanted, Instant::now());
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

    /// Forwards a request to this node, over the own connection to it alone.
    ///
    /// # Errors
    /// [`RelayError`], never later than shortly after the deadline.
    ///
    /// # Cancellation
    /// Dropping the future cancels the request.
    pub(crate) async fn relay(
        &self,
        node: NodeId,
        request: SignRequest,
        context: &RequestContext<'_>,
    ) -> Result<Vec<u8>, RelayError> {
        let peer = self.0.settled.read().peers.get(&node).cloned().ok_or(RelayError::NoWay)?;
        let margin = self.0.options.margin;
        let way = peer.own_way().ok_or(RelayError::NoWay)? + margin;
        let request = context.peer_request(request, margin);
        if request.patience <= way {
            return Err(RelayError::Late);
        }
        self.0.metrics.relayed();
        Ok(Attempt::run(peer, request, Path::Direct, context, "relayed").await.reply?)
    }
}
