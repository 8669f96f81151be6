//! One attempt: a request to one node, and its reply.

use std::time::{Duration, Instant};

use keys::Deadline;

use super::error::PeerError;
use super::peer::{Asked, Outgoing, Peer};
use crate::native::TraceParent;
use crate::native::proto::SignRequest;
use crate::traces::{HopNumber, Hops};

/// For whom, and until when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking<'a> {
    pub(crate) tenant: &'a str,
    /// Of the tenant, under way to one node.
    pub(crate) most: usize,
    /// That the key must be sealed to; empty: any.
    pub(crate) policy: &'a str,
    pub(crate) trace: Option<TraceParent>,
    /// Where to note who is asked.
    pub(crate) hops: Option<&'a Hops>,
    pub(crate) deadline: Deadline,
}

impl Asking<'_> {
    /// This request, with what is left of its time.
    pub(super) fn outgoing(&self, message: SignRequest, margin: Duration) -> Outgoing<'_> {
        let patience = self.deadline.saturating_duration_since(Instant::now());
        Outgoing { message, tenant: self.tenant, most: self.most, patience, margin }
    }

    fn asked(&self, peer: &Peer, through: Option<&str>, why: &'static str) -> Option<HopNumber> {
        let hops = self.hops?;
        let (node, site) = (&peer.member().name, &peer.member().site);
        Some(match through {
            Some(through) => hops.asked(&format!("{node} through {through}"), site, why),
            None => hops.asked(node, site, why),
        })
    }

    fn ended(&self, hop: Option<HopNumber>, done: &Result<Vec<u8>, PeerError>) {
        if let (Some(hops), Some(hop)) = (self.hops, hop) {
            hops.ended(hop, done.as_ref().err().map(PeerError::name));
        }
    }
}

/// What became of one try.
pub(super) async fn attempted(
    peer: &Peer,
    asked: Result<Asked, PeerError>,
    asking: &Asking<'_>,
    why: &'static str,
    patience: Duration,
) -> Result<Vec<u8>, PeerError> {
    let through = asked.as_ref().ok().and_then(Asked::through).map(|member| member.name.as_str());
    let hop = asking.asked(peer, through, why);
    let done = match asked {
        Ok(asked) => asked.answered(patience).await,
        Err(error) => {
            peer.metrics.failed(&error);
            Err(error)
        }
    };
    asking.ended(hop, &done);
    done
}
