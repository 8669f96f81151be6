//! A connection: TLS handshake, requests, shutdown.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use authority::PresentedChain;
use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, EXPECT, HeaderValue};
use http::{HeaderMap, Request, StatusCode, Version};
use hyper::body::{Body as HttpBody, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use inbound::{CountedFrames, Silence, TrustedProxies};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::body::{Activity, SlowBody, TimedBody, TrackedResponseBody};
use super::context::ServerContext;
use super::executor::Streams;
use super::listener::{ConnectionTimeouts, Listener};
use super::memory::ResponseMemory;
use super::stream::{ActivityStream, WriteTimeoutStream};
use crate::peer::Peer;
use crate::problem::Problem;

/// Maximum concurrent requests on one HTTP/2 connection; a dashboard or an agent sends a few.
const STREAMS_MAX: u32 = 128;

/// Maximum bytes of a request head: a session cookie, a token and a cursor with a long host name fit.
const HEAD_MAX: usize = 32 << 10;

/// Maximum headers in a request head.
const HEADERS_MAX: usize = 64;

/// Maximum streams that are reset before a task handles them (rapid reset, CVE-2023-44487). One more closes the connection.
const RESETS_MAX: usize = 20;

/// Maximum streams that this side resets because of client errors. One more closes the connection.
const ERRORS_MAX: usize = 128;

/// Maximum buffered bytes of one stream's response. The body is polled again once these bytes are written. With [`STREAMS_MAX`] at
/// most 4 MiB for a connection whose client grants large windows and reads nothing.
const SEND_BUFFER_MAX: usize = 32 << 10;

const UNREAD: &str = "the memory for responses is used up by responses that clients have not read yet";

/// `Retry-After` in seconds: clients that read nothing are disconnected after half a minute.
const UNREAD_RETRY_SECONDS: u64 = 5;

/// Exporter label of `tls-exporter` (RFC 9266 section 4.2).
const CHANNEL_BINDING: &[u8] = b"EXPORTER-Channel-Binding";

/// Serves a TLS connection from its first byte to its last.
pub(super) async fn serve_tls(
    shared: Arc<ServerContext>,
    stream: TcpStream,
    (address, silence): (IpAddr, Silence),
    router: Router,
    kind: Listener,
) {
    let acceptor = TlsAcceptor::from(shared.tls(kind));
    let stream = WriteTimeoutStream::new(stream, shared.options.write_timeout);
    let (metrics, stopping) = (shared.state.metrics(), shared.tasks.stopping());
    let handshake = tokio::time::timeout(shared.options.handshake_timeout, acceptor.accept(stream));
    let stream = tokio::select! {
        () = stopping.cancelled() => return,
        outcome = handshake => match outcome {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                metrics.handshake("failed");
                tracing::debug!(%address, %error, "a TLS handshake failed");
                return;
            }
            Err(_) => {
                metrics.handshake("timed-out");
                return;
            }
        },
    };
    metrics.handshake("done");
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let peer = connection_peer(&stream, address);
    let certificates = &shared.connection_slots.of(kind).certificates;
    let share = peer.client_certificate.as_ref().map(|chain| certificates.take(chain.leaf_sha256()));
    if share.as_ref().is_some_and(Option::is_none) {
        return metrics.connection_refused(kind.name(), "certificate-share");
    }
    let activity = Activity::new(silence);
    if http2 {
        let metrics = metrics.clone();
        let stream = CountedFrames::new(stream, move |flood| {
            metrics.connection_refused(kind.name(), "frame-flood");
            tracing::info!(%address, %flood, "a connection was closed because of a flood of frames");
        });
        serve(&shared, stream, (peer, activity), router, (kind, http2)).await;
    } else {
        let stream = ActivityStream { inner: stream, activity: Arc::clone(&activity) };
        serve(&shared, stream, (peer, activity), router, (kind, http2)).await;
    }
}

/// Serves a connection without TLS.
pub(super) async fn serve_plain_http(
    shared: Arc<ServerContext>,
    stream: TcpStream,
    (address, silence): (IpAddr, Silence),
    router: Router,
) {
    let activity = Activity::new(silence);
    let stream = WriteTimeoutStream::new(stream, shared.options.write_timeout);
    let stream = ActivityStream { inner: stream, activity: Arc::clone(&activity) };
    serve(&shared, stream, (Peer::at(address), activity), router, (Listener::Public, false)).await;
}

fn connection_peer<I>(stream: &TlsStream<I>, address: IpAddr) -> Peer {
    let connection = stream.get_ref().1;
    // In TLS 1.2 the exporter is bound to the connection only with the extended master secret; in TLS 1.3 always.
    let bound = connection.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
    let binding =
        bound.then(|| connection.export_keying_material([0; 32], CHANNEL_BINDING, Some(&[])).ok()).flatten();
    let client_certificate = PresentedChain::new(connection.peer_certificates().unwrap_or_default());
    Peer { address, client_certificate, channel_binding: binding }
}

fn builder(timeouts: ConnectionTimeouts, streams: Streams, http2: bool) -> Builder<Streams> {
    let mut builder = Builder::new(streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        // hyper counts the idle time too, so its timeout must be larger. `Activity` enforces the exact timeout of a head.
        .header_read_timeout(timeouts.idle * 2)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_MAX as u32)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_local_error_reset_streams(ERRORS_MAX)
        .max_send_buf_size(SEND_BUFFER_MAX)
        .keep_alive_interval(timeouts.ping)
        .keep_alive_timeout(timeouts.head);
    if http2 { builder.http2_only() } else { builder.http1_only() }
}

async fn serve<I>(
    shared: &Arc<ServerContext>,
    io: I,
    (peer, activity): (Peer, Arc<Activity>),
    router: Router,
    (kind, http2): (Listener, bool),
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let options = &shared.options;
    let timeouts = kind.timeouts(options);
    // Canceled when the connection ends, to end its streams.
    let ended = CancellationToken::new();
    let _ended = ended.clone().drop_guard();
    let stopping = shared.tasks.stopping();
    let streams = Streams { tasks: shared.tasks.clone(), ended };
    let service = {
        let (activity, shared, rest) = (Arc::clone(&activity), Arc::clone(shared), streams.clone());
        hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut peer = peer.clone();
            peer.address = client_address(peer.address, request.headers(), &shared.options.trusted_proxies);
            let memory = shared.connection_slots.of(kind).memory.clone();
            let connection_parts = (Arc::clone(&activity), rest.clone(), memory);
            answer(Arc::clone(&shared), router.clone(), request, peer, connection_parts)
        })
    };
    let builder = builder(timeouts, streams, http2);
    let connection = builder.serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);
    let check_every = timeouts.idle.min(timeouts.head).min(options.write_timeout) / 4;
    let mut ending = false;
    loop {
        tokio::select! {
            outcome = connection.as_mut() => {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "a connection broke");
                }
                return;
            }
            () = stopping.cancelled(), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep(check_every) => {
                let idle_time = activity.idle_time();
                let idle = activity.in_flight() == 0;
                // An idle connection gets a short time to receive the shutdown notice. A connection whose peer reads nothing gets
                // none.
                let hopeless = if idle { idle_time > timeouts.idle * 2 } else { idle_time > options.stall_timeout };
                let late = if activity.head_read_time() > timeouts.head {
                    Some("head-timeout")
                } else if activity.has_unread_response() {
                    Some("answer-unread")
                } else {
                    None
                };
                if let Some(reason) = late {
                    shared.state.metrics().connection_refused(kind.name(), reason);
                }
                if hopeless || late.is_some() {
                    return;
                }
                if idle && idle_time > check_every {
                    activity.mark_evictable();
                }
                if idle && idle_time > timeouts.idle && !ending {
                    ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Returns the client address behind a trusted proxy: the last address of `X-Forwarded-For` that is not a trusted proxy. Earlier
/// addresses may be forged by the client.
fn client_address(address: IpAddr, headers: &HeaderMap, proxies: &TrustedProxies) -> IpAddr {
    if !proxies.contains(address) {
        return address;
    }
    let lines: Vec<&str> =
        headers.get_all("x-forwarded-for").iter().filter_map(|line| line.to_str().ok()).collect();
    let mut nearest = address;
    for text in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
        let Ok(next) = text.trim().parse::<IpAddr>() else { break };
        nearest = next.to_canonical();
        if !proxies.contains(nearest) {
            break;
        }
    }
    nearest
}

async fn answer(
    shared: Arc<ServerContext>,
    router: Router,
    request: Request<Incoming>,
    peer: Peer,
    (activity, streams, memory): (Arc<Activity>, Streams, ResponseMemory),
) -> Result<Response, Infallible> {
    let in_flight = activity.request();
    let (address, body_timeout) = (peer.address, shared.options.body_timeout);
    let slow = SlowBody::default();
    let http1 = request.version() < Version::HTTP_2;
    // A client that sent `Expect` sends no body before it gets permission (RFC 9110 section 10.1.1): there is nothing left to read.
    let rest = (!request.headers().contains_key(EXPECT)).then_some(streams);
    let mut request = request.map(|body| Body::new(TimedBody::new(body, body_timeout, slow.clone(), rest)));
    request.extensions_mut().insert(peer);
    let mut response = router.oneshot(request).await?;
    if slow.was_slow() {
        response = Problem::of_status(
            StatusCode::REQUEST_TIMEOUT,
            Some(format!("the body did not arrive within {} s", body_timeout.as_secs())),
        )
        .into_response();
        if http1 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
    let size = HttpBody::size_hint(response.body()).lower();
    let (response, memory) = match memory.take(address, usize::try_from(size).unwrap_or(usize::MAX)) {
        Some(memory) => (response, Some(memory)),
        None => {
            shared.state.metrics().refused("answer-memory");
            drop(response);
            (Problem::unavailable(UNREAD, UNREAD_RETRY_SECONDS).into_response(), None)
        }
    };
    let timeouts = shared.options.write_timeout;
    Ok(response.map(|inner| Body::new(TrackedResponseBody::new(inner, in_flight, memory, timeouts))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x_forwarded_for_is_used_only_from_trusted_proxies() {
        let proxies = TrustedProxies::new(&["10.0.0.0/8".parse().unwrap()]);
        let of = |from: &str, forwarded: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in forwarded {
                headers.append("x-forwarded-for", HeaderValue::from_str(line).unwrap());
            }
            client_address(from.parse().unwrap(), &headers, &proxies).to_string()
        };
        assert_eq!(of("192.0.2.1", &["198.51.100.7"]), "192.0.2.1", "no proxy of ours");
        assert_eq!(of("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(of("10.0.0.1", &["198.51.100.7"]), "198.51.100.7");
        assert_eq!(
            of("10.0.0.1", &["1.1.1.1, 198.51.100.7, 10.0.0.2"]),
            "198.51.100.7",
            "1.1.1.1 is hearsay"
        );
        assert_eq!(of("10.0.0.1", &["1.1.1.1", "198.51.100.7"]), "198.51.100.7");
        assert_eq!(of("10.0.0.1", &["nonsense, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(of("10.0.0.1", &["2001:db8::1"]), "2001:db8::1");
    }
}
