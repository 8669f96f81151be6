//! What other nodes of the own site ask of this one: to reach a node for them, and to pass requests on to it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::key::attempted;
use super::peer::PeerError;
use super::pod::WANTED_MAX;
use super::{Asking, Member, NodeId, Router};
use crate::native::proto::SignRequest;
use crate::tenant::Identity;

/// Why a request was not passed on, or what was answered to it there.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum RelayError {
    /// There is no connection to that node.
    #[error("this node has no way to that one")]
    NoWay,
    /// As many requests as may are under way to it.
    #[error("as many requests as may are under way to that node")]
    Full,
    /// The connection was lost with it.
    #[error("the way to that node was lost")]
    Lost,
    /// It did not answer in time, or there is less time than the way takes.
    #[error("that node did not answer in time")]
    Late,
    /// It said so: a code of gRPC, and for people.
    #[error("{1}")]
    Answered(tonic::Code, String),
}

impl From<PeerError> for RelayError {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Full => Self::Full,
            PeerError::Unsent => Self::NoWay,
            PeerError::Lost => Self::Lost,
            PeerError::Late => Self::Late,
            PeerError::Answered(status) => Self::Answered(status.code(), status.message().to_owned()),
        }
    }
}

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
