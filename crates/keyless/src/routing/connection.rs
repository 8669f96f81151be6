//! The connection to a node: opening, measuring, reconnecting.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::channel::ConnectionState;
use super::error::PeerError;
use super::options::RouterOptions;
use super::peer::Peer;
use super::state::RouterState;
use crate::backoff::spread;
use crate::limits::NODE_MAX;
use crate::native::proto::{Failure, PingReply, PingRequest, SignReply, SignRequest, failure, sign_reply};
use crate::native::{CallOptions, Client};
use crate::node::NodeId;

/// Capacity of the queue of outgoing messages: requests, and as many cancellations.
const OUTGOING_MAX: usize = 2 * NODE_MAX;

/// Keeps a node connected until `stop` is cancelled or the router is dropped.
pub(super) async fn maintain(
    peer: Arc<Peer>,
    inner: Weak<RouterState>,
    options: RouterOptions,
    (generation, stop): (u64, CancellationToken),
) {
    let _live = telemetry::tasks::guard("keyless-peer");
    tokio::select! {
        () = stop.cancelled() => {}
        () = keep_connected(&peer, generation, &inner, &options) => {}
    }
    peer.close(generation, ConnectionState::Unwanted);
}

async fn keep_connected(peer: &Peer, generation: u64, inner: &Weak<RouterState>, options: &RouterOptions) {
    let mut pause = options.backoff;
    let mut is_known_unreachable = false;
    let (node, site) = (&peer.member().name, &peer.member().site);
    loop {
        let Some(tls) = inner.upgrade().map(|inner| Arc::clone(&inner.tls.read())) else { return };
        match connect(peer, &tls, options).await {
            Ok((client, way, replies)) => {
                tracing::info!(node, site, "connected to a node");
                is_known_unreachable = false;
                let since = Instant::now();
                peer.open(generation, way);
                let why = tokio::select! {
                    status = read(peer, replies) => status,
                    status = measure(peer, &client, inner, options) => status,
                };
                // Reconnect immediately if the connection was open longer than the maximum pause. A node that closes connections
                // sooner counts as down.
                let was_good = since.elapsed() > options.backoff_max;
                peer.close(
                    generation,
                    if was_good { ConnectionState::Connecting } else { ConnectionState::Down },
                );
                tracing::warn!(node, site, error = %why, "the connection to a node was lost");
                if was_good {
                    pause = options.backoff;
                    continue;
                }
            }
            Err(status) => {
                peer.close(generation, ConnectionState::Down);
                // Warn once: later failures report the same problem.
                if std::mem::replace(&mut is_known_unreachable, true) {
                    tracing::debug!(node, site, error = %status, "a node cannot be reached");
                } else {
                    tracing::warn!(node, site, error = %status, "a node cannot be reached; will retry");
                }
            }
        }
        tokio::time::sleep(spread(pause)).await;
        pause = (pause * 2).min(options.backoff_max);
    }
}

type Connected = (Client, mpsc::Sender<SignRequest>, Streaming<SignReply>);

async fn connect(
    peer: &Peer,
    tls: &rustls::ClientConfig,
    options: &RouterOptions,
) -> Result<Connected, Status> {
    let member = peer.member();
    let client = Client::pinned(&member.address, &member.id.dns(), tls, member.tls_spki_sha256)
        .map_err(|error| Status::internal(error.to_string()))?;
    let call_options = CallOptions::within(options.connect_timeout);
    // The first ping opens the connection, the second one measures it.
    client.ping(call_options).await?;
    let began = Instant::now();
    client.ping(call_options).await?;
    peer.measured(began.elapsed());
    let (way, mut requests) = mpsc::channel(OUTGOING_MAX);
    let requests = stream::poll_fn(move |context| requests.poll_recv(context));
    let replies = client.sign_stream(requests, call_options).await?;
    Ok((client, way, replies))
}

async fn read(peer: &Peer, mut replies: Streaming<SignReply>) -> Status {
    loop {
        let reply = match replies.next().await {
            Some(Ok(reply)) => reply,
            Some(Err(status)) => return status,
            None => return Status::unavailable("the node accepts no more requests"),
        };
        let answer = match reply.outcome {
            Some(sign_reply::Outcome::Signature(signature)) => Ok(signature),
            Some(sign_reply::Outcome::Failure(failure)) => Err(failed(failure)),
            None => Err(PeerError::Answered(Status::internal("the reply is empty"))),
        };
        peer.complete(reply.id, answer);
    }
}

/// Converts a failure reply to an error. In a reply of a relay, `way` is the reason why the relay got no response from the
/// destination.
fn failed(failure: Failure) -> PeerError {
    match failure.way() {
        failure::Way::Unspecified => PeerError::Answered(Status::new(failure.code.into(), failure.message)),
        failure::Way::None => PeerError::Unsent,
        failure::Way::Full => PeerError::Full,
        failure::Way::Lost => PeerError::Lost,
        failure::Way::Late => PeerError::Late,
    }
}

/// Pings the peer until a ping times out. A ping to a node of the pod lists the destinations that this node wants to reach; the
/// reply lists the destinations that the peer reaches.
async fn measure(peer: &Peer, client: &Client, inner: &Weak<RouterState>, options: &RouterOptions) -> Status {
    let node = peer.member().id;
    let router = || inner.upgrade();
    // The wanted nodes are sent immediately after connecting.
    let soon = options.ping_every / 10;
    let is_wanted = router().is_some_and(|router| !router.wanted_of(node).is_empty());
    let mut pause = if is_wanted { Duration::ZERO } else { options.ping_every };
    let mut excused = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(spread(pause)) => {}
            () = peer.woken() => pause = Duration::ZERO,
        }
        let Some(wanted) = router().map(|router| router.wanted_of(node)) else {
            return Status::unavailable("the router has stopped");
        };
        let began = Instant::now();
        let request = PingRequest { wanted: wanted.iter().map(|node| node.0.to_vec()).collect() };
        let (shares, reached) =
            match client.ping_with_wanted_nodes(request, CallOptions::within(options.ping_timeout)).await {
                Ok(reply) => (reply.shares, reached(reply)),
                Err(status)
                    if is_excused(&status, peer.replied_since(began), began.elapsed(), options, excused) =>
                {
                    excused += 1;
                    pause = options.ping_every;
                    continue;
                }
                Err(status) => return status,
            };
        excused = 0;
        peer.measured(began.elapsed());
        // Ping sooner while the node has not yet reached all wanted nodes.
        let is_due = wanted.iter().any(|node| !reached.contains_key(node));
        pause = if is_due { (pause * 2).clamp(soon, options.ping_every) } else { options.ping_every };
        if let Some(router) = router() {
            router.record_reachable(node, shares.then_some(reached));
        }
    }
}

/// Maximum consecutive ping timeouts that are excused because this machine was stalled, if the node sends no other replies
/// either.
const EXCUSED_MAX: u32 = 2;

/// Returns whether the connection stays open after a ping timeout. Either the node sent other replies and is only busy, or this
/// machine was stalled and may not yet have read the reply.
fn is_excused(
    status: &Status,
    has_replied: bool,
    took: Duration,
    options: &RouterOptions,
    excused: u32,
) -> bool {
    let was_stalled = took > options.ping_timeout * 3 / 2 && excused < EXCUSED_MAX;
    status.code() == tonic::Code::DeadlineExceeded && (has_replied || was_stalled)
}

fn reached(reply: PingReply) -> HashMap<NodeId, Duration> {
    let way = |way: crate::native::proto::Way| {
        let node = way.node.as_slice().try_into().ok()?;
        Some((NodeId(node), Duration::from_micros(way.round_trip_us)))
    };
    reply.ways.into_iter().filter_map(way).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_to_a_busy_node_stays_open_after_missed_pings() {
        let options = RouterOptions::default();
        let late = Status::deadline_exceeded("");
        let timeout = options.ping_timeout;
        let is = |status: &Status, has_replied, took, excused| {
            is_excused(status, has_replied, took, &options, excused)
        };
        assert!(!is(&late, false, timeout, 0), "it says nothing at all");
        assert!(is(&late, true, timeout, 9), "it goes on to sign");
        assert!(is(&late, false, timeout * 2, 0), "this machine was stalled");
        assert!(!is(&late, false, timeout * 2, EXCUSED_MAX), "not for ever");
        assert!(!is(&Status::unavailable(""), true, timeout, 0), "the connection is lost");
    }
}
