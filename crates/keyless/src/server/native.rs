//! Connections of the native protocol: HTTP/2 with limits.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use inbound::ServiceTasks;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::arriving::{IncomingMessages, IncompleteBytes};
use super::connection::{DRAIN, End};
use super::service::{Keys, MESSAGE_MAX};
use super::state::ServerState;
use crate::native::proto::key_service_server::KeyServiceServer;
use crate::tenant::{Client, Identity};

/// Maximum concurrent calls on one connection; a stream is one call. About 4 KB each, without incomplete messages and unread
/// replies, which have limits for the connection.
pub const CALLS_MAX: u32 = 1_024;
/// Flow-control window of one call, in bytes: a whole batch of digests.
const STREAM_WINDOW: u32 = 256 << 10;
/// Flow-control window of the connection, in bytes: four batches.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Flow-control window of one call of another node, which uses one stream for all its clients: enough for 70,000 requests of 150
/// bytes per second at 100 ms.
const NODE_STREAM_WINDOW: u32 = 1 << 20;
/// Flow-control window of another node's connection, in bytes.
const NODE_CONNECTION_WINDOW: u32 = 2 << 20;
/// Maximum bytes of replies of one call that wait for the peer: the replies of a batch.
const SEND_MAX: usize = 64 << 10;
/// Maximum bytes of a call's header fields.
const HEADER_MAX: u32 = 16 << 10;
/// Maximum resets on one connection: of calls that the peer reset before they were processed (rapid reset, CVE-2023-44487), and,
/// counted separately, of calls that were reset for errors of the peer. Above either maximum, the connection closes.
const RESETS_MAX: usize = 64;
/// Interval of keep-alive pings on a silent connection.
const PING_EVERY: Duration = Duration::from_secs(20);
/// Timeout of a keep-alive ping: gRPC's default. A shorter one closes connections of a busy client, which responds late.
const PING_WITHIN: Duration = Duration::from_secs(20);

/// Calls in progress on a connection, for the detection of idle connections.
#[derive(Default)]
struct Activity {
    begun: AtomicU64,
    under_way: AtomicUsize,
}

/// A call in progress, until dropped.
struct UnderWay(Arc<Activity>);

impl UnderWay {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.begun.fetch_add(1, Relaxed);
        activity.under_way.fetch_add(1, Relaxed);
        Self(Arc::clone(activity))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}

/// Runs calls as tasks, which are counted and end with the server.
#[derive(Clone)]
struct CallExecutor {
    tasks: ServiceTasks,
    activity: Arc<Activity>,
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for CallExecutor {
    fn execute(&self, call: F) {
        let under_way = UnderWay::new(&self.activity);
        self.tasks.spawn_bounded(async move {
            let _live = telemetry::tasks::guard("keyless-call");
            let _under_way = under_way;
            call.await;
        });
    }
}

/// Serves one connection until it ends. Once `leave` is cancelled, no more calls are accepted.
pub(super) async fn serve<S>(
    shared: Arc<ServerState>,
    stream: S,
    identity: Identity,
    leave: CancellationToken,
) -> End
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::new(Activity::default());
    let owned = CallExecutor { tasks: shared.tasks.clone(), activity: Arc::clone(&activity) };
    let client = Arc::new(Client::new(identity, &shared.tenants));
    let (stream_window, connection_window) = if client.is_node() {
        (NODE_STREAM_WINDOW, NODE_CONNECTION_WINDOW)
    } else {
        (STREAM_WINDOW, CONNECTION_WINDOW)
    };
    let service = KeyServiceServer::new(Keys::new(Arc::clone(&shared), client))
        .max_decoding_message_size(MESSAGE_MAX)
        .max_encoding_message_size(2 * MESSAGE_MAX);
    let (incomplete_bytes, idle_timeout) = (IncompleteBytes::default(), shared.options.idle);
    let answer = service_fn(move |request: http::Request<Incoming>| {
        let is_stream = request.uri().path().ends_with("/SignStream");
        let request = request
            .map(|body| IncomingMessages::new(body, incomplete_bytes.clone(), idle_timeout, is_stream));
        service.clone().call(request)
    });
    let connection = http2::Builder::new(owned)
        .timer(TokioTimer::new())
        .max_concurrent_streams(CALLS_MAX)
        .initial_stream_window_size(stream_window)
        .initial_connection_window_size(connection_window)
        .max_send_buf_size(SEND_MAX)
        .max_header_list_size(HEADER_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(RESETS_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WITHIN)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    let stop = tokio::select! {
        ended = connection.as_mut() => return end_of(&ended),
        () = leave.cancelled() => End::Stopped,
        () = idle(&shared, &activity) => End::Idle,
    };
    connection.as_mut().graceful_shutdown();
    // Pending calls are completed; a peer that sends more is disconnected.
    let _ = tokio::time::timeout(DRAIN, connection).await;
    stop
}

fn end_of(ended: &Result<(), hyper::Error>) -> End {
    match ended {
        Ok(()) => End::Closed,
        Err(error) if error.is_timeout() || error.is_incomplete_message() => End::Broken,
        Err(error) => {
            tracing::debug!(%error, "a connection of the native protocol failed");
            End::Malformed
        }
    }
}

/// Waits until the connection has been idle for the timeout. The timeout is shorter before the first call.
async fn idle(shared: &ServerState, activity: &Activity) {
    let mut begun = 0;
    loop {
        let idle_timeout = if begun == 0 { shared.options.idle } else { shared.options.socket_idle };
        tokio::time::sleep(idle_timeout).await;
        let now = activity.begun.load(Relaxed);
        if now == begun && activity.under_way.load(Relaxed) == 0 {
            return;
        }
        begun = now;
    }
}
