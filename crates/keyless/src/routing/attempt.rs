//! One attempt: a request to one node, and its reply. All routed and forwarded requests use this module.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keys::Deadline;

use super::error::PeerError;
use super::peer::{Peer, PeerRequest, PendingRequest};
use crate::native::TraceParent;
use crate::native::proto::SignRequest;
use crate::node::NodeId;
use crate::traces::{HopNumber, Hops};

/// Context of a signature request: tenant, limits, trace and deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestContext<'a> {
    pub(crate) tenant: &'a str,
    /// Maximum requests of the tenant in flight to one node.
    pub(crate) most: usize,
    /// Policy that the key must be sealed to; empty for any.
    pub(crate) policy: &'a str,
    pub(crate) trace: Option<TraceParent>,
    /// List in which each node that receives the request is recorded, for traces.
    pub(crate) hops: Option<&'a Hops>,
    pub(crate) deadline: Deadline,
}

impl RequestContext<'_> {
    /// Returns the message with the time left until the deadline.
    pub(super) fn peer_request(&self, message: SignRequest, margin: Duration) -> PeerRequest<'_> {
        let time_left = self.deadline.saturating_duration_since(Instant::now());
        PeerRequest { message, tenant: self.tenant, most: self.most, time_left, margin }
    }

    fn hop_started(&self, peer: &Peer, through: Option<&str>, why: &'static str) -> Option<HopNumber> {
        let hops = self.hops?;
        let (node, site) = (&peer.member().name, &peer.member().site);
        Some(match through {
            Some(through) => hops.start(&format!("{node} through {through}"), site, why),
            None => hops.start(node, site, why),
        })
    }

    fn hop_ended(&self, hop: Option<HopNumber>, done: &Result<Vec<u8>, PeerError>) {
        if let (Some(hops), Some(hop)) = (self.hops, hop) {
            hops.finish(hop, done.as_ref().err().map(PeerError::name));
        }
    }
}

/// Choice of the connection that carries a request to its node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Path {
    /// The direct connection to the node. Without a direct connection, the connection to a relay: another node that forwards the
    /// request.
    Shortest,
    /// Only the direct connection to the node. For forwarded requests, which are not forwarded again.
    Direct,
}

/// A finished attempt: the node, its reply or error, and the relay if there was one.
pub(super) struct Attempt {
    pub(super) peer: Arc<Peer>,
    pub(super) reply: Result<Vec<u8>, PeerError>,
    /// The node that forwarded the request. `None` for a request on the direct connection.
    relay: Option<NodeId>,
}

impl Attempt {
    /// Sends a request to one node and waits for the reply, at most until the request's deadline.
    ///
    /// # Cancellation
    /// Dropping the future cancels the request, here and at the other node.
    pub(super) async fn run(
        peer: Arc<Peer>,
        request: PeerRequest<'_>,
        path: Path,
        context: &RequestContext<'_>,
        why: &'static str,
    ) -> Self {
        let time_left = request.time_left;
        let sent = match path {
            Path::Shortest => peer.send(request),
            Path::Direct => peer.send_direct(request),
        };
        let relay = sent.as_ref().ok().and_then(PendingRequest::relay);
        let hop = context.hop_started(&peer, relay.map(|relay| relay.name.as_str()), why);
        let relay = relay.map(|relay| relay.id);
        let reply = match sent {
            Ok(pending) => pending.reply(time_left).await,
            Err(error) => {
                peer.metrics.failed(&error);
                Err(error)
            }
        };
        context.hop_ended(hop, &reply);
        Self { peer, reply, relay }
    }

    /// Returns whether another path to the node may succeed: either the relay did not pass on the request, or the connection was
    /// lost, which does not prove that the node is down.
    pub(super) fn has_another_path(&self) -> bool {
        self.is_path_lost()
    }

    /// Returns the relay that has lost its path to the node.
    pub(super) fn lost_relay(&self) -> Option<NodeId> {
        self.relay.filter(|_| self.is_path_lost())
    }

    fn is_path_lost(&self) -> bool {
        matches!(self.reply, Err(PeerError::Lost | PeerError::Unsent))
    }
}
