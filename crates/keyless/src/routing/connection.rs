//! The connection to a node: made, measured, and made again.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::peer::{IN_FLIGHT_MAX, Peer};
use super::{Inner, RouterOptions};
use crate::client::spread;
use crate::native::proto::{SignReply, SignRequest, sign_reply};
use crate::native::{Client, Terms};

/// Requests, and as many that are taken back.
const WAY_MAX: usize = 2 * IN_FLIGHT_MAX;

/// Keeps a node connected until it is gone, or nobody asks any more.
pub(super) async fn keep(peer: Arc<Peer>, inner: Weak<Inner>, options: RouterOptions) {
    let _live = telemetry::tasks::guard("keyless-peer");
    let stopping: CancellationToken = peer.stopping().clone();
    tokio::select! {
        () = stopping.cancelled() => {}
        () = connect_again_and_again(&peer, &inner, &options) => {}
    }
    peer.close(false);
}

async fn connect_again_and_again(peer: &Peer, inner: &Weak<Inner>, options: &RouterOptions) {
    let mut pause = options.backoff;
    let mut is_known_to_be_away = false;
    let (node, site) = (&peer.member().name, &peer.member().site);
    loop {
        let Some(tls) = inner.upgrade().map(|inner| Arc::clone(&inner.tls.read())) else { return };
        match connect(peer, &tls, options).await {
            Ok((client, way, replies)) => {
                tracing::info!(node, site, "connected to a node");
                is_known_to_be_away = false;
                let since = Instant::now();
                peer.open(way);
                let why = tokio::select! {
                    status = read(peer, replies) => status,
                    status = measure(peer, &client, options) => status,
                };
                // One that was good for something is made again at once; who ends others soon is as good as away.
                let was_good = since.elapsed() > options.backoff_max;
                peer.close(was_good);
                tracing::warn!(node, site, error = %why, "the connection to a node was lost");
                if was_good {
                    pause = options.backoff;
                    continue;
                }
            }
            Err(status) => {
                peer.close(false);
                // Told once: each try after it says the same.
                if std::mem::replace(&mut is_known_to_be_away, true) {
                    tracing::debug!(node, site, error = %status, "a node cannot be reached");
                } else {
                    tracing::warn!(node, site, error = %status, "a node cannot be reached; it is tried again");
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
    let terms = Terms::within(options.connect_timeout);
    // The first makes the connection, the second measures it.
    client.ping(terms).await?;
    peer.measured(ping(&client, options.connect_timeout).await?);
    let (way, mut requests) = mpsc::channel(WAY_MAX);
    let requests = stream::poll_fn(move |context| requests.poll_recv(context));
    let replies = client.sign_stream(requests, terms).await?;
    Ok((client, way, replies))
}

async fn ping(client: &Client, patience: Duration) -> Result<Duration, Status> {
    let began = Instant::now();
    client.ping(Terms::within(patience)).await?;
    Ok(began.elapsed())
}

async fn read(peer: &Peer, mut replies: Streaming<SignReply>) -> Status {
    loop {
        let reply = match replies.next().await {
            Some(Ok(reply)) => reply,
            Some(Err(status)) => return status,
            None => return Status::unavailable("the node takes no more requests"),
        };
        let answer = match reply.outcome {
            Some(sign_reply::Outcome::Signature(signature)) => Ok(signature),
            Some(sign_reply::Outcome::Failure(failure)) => {
                Err(Status::new(failure.code.into(), failure.message))
            }
            None => Err(Status::internal("the reply says nothing")),
        };
        peer.answer(reply.id, answer);
    }
}

/// Ends when a ping is not answered in time.
async fn measure(peer: &Peer, client: &Client, options: &RouterOptions) -> Status {
    loop {
        tokio::time::sleep(spread(options.ping_every)).await;
        match ping(client, options.ping_timeout).await {
            Ok(round_trip) => peer.measured(round_trip),
            Err(status) => return status,
        }
    }
}
