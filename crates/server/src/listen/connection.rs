//! One connection: its handshake, its requests, its end.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use authority::PresentedChain;
use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, EXPECT, HeaderValue};
use http::{HeaderMap, Request, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::body::{Activity, AnswerBody, SlowBody, TimelyBody};
use super::context::ServerContext;
use super::executor::Streams;
use super::listener::{Listener, Patience};
use super::stream::Unstalled;
use crate::peer::Peer;
use crate::problem::Problem;

/// Requests at once on one HTTP/2 connection: a dashboard's or an agent's are a few.
const STREAMS_MAX: u32 = 128;

/// Octets of a request's head: a session cookie, a token, a cursor of a long host name.
const HEAD_MAX: usize = 32 << 10;

/// Headers in a request's head.
const HEADERS_MAX: usize = 64;

/// The exporter's label of `tls-exporter` (RFC 9266 section 4.2).
const CHANNEL_BINDING: &[u8] = b"EXPORTER-Channel-Binding";

/// A TLS connection from its first octet to its last.
pub(super) async fn over_tls(
    shared: Arc<ServerContext>,
    stream: TcpStream,
    address: IpAddr,
    router: Router,
    kind: Listener,
) {
    let acceptor = TlsAcceptor::from(shared.tls(kind));
    let stream = Unstalled::new(stream, shared.options.write_timeout);
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
    let peer = peer_of(&stream, address);
    serve(&shared, stream, peer, router, (kind, http2)).await;
}

/// A connection without TLS.
pub(super) async fn in_the_open(
    shared: Arc<ServerContext>,
    stream: TcpStream,
    address: IpAddr,
    router: Router,
) {
    let stream = Unstalled::new(stream, shared.options.write_timeout);
    serve(&shared, stream, Peer::at(address), router, (Listener::Public, false)).await;
}

fn peer_of<I>(stream: &TlsStream<I>, address: IpAddr) -> Peer {
    let connection = stream.get_ref().1;
    // In TLS 1.2 the exporter binds only with the extended master secret; in 1.3 always.
    let bound = connection.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
    let binding =
        bound.then(|| connection.export_keying_material([0; 32], CHANNEL_BINDING, Some(&[])).ok()).flatten();
    let client_certificate = PresentedChain::new(connection.peer_certificates().unwrap_or_default());
    Peer { address, client_certificate, channel_binding: binding }
}

fn builder(patience: Patience, streams: Streams, http2: bool) -> Builder<Streams> {
    let mut builder = Builder::new(streams);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.head)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_MAX as u32)
        .keep_alive_interval(patience.head)
        .keep_alive_timeout(patience.head);
    if http2 { builder.http2_only() } else { builder.http1_only() }
}

async fn serve<I>(
    shared: &Arc<ServerContext>,
    io: I,
    peer: Peer,
    router: Router,
    (kind, http2): (Listener, bool),
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let options = &shared.options;
    let patience = kind.patience(options);
    // Its streams end with this connection.
    let ended = CancellationToken::new();
    let _ended = ended.clone().drop_guard();
    let stopping = shared.tasks.stopping();
    let activity = Activity::new();
    let streams = Streams { tasks: shared.tasks.clone(), ended };
    let service = {
        let (activity, shared, rest) = (Arc::clone(&activity), Arc::clone(shared), streams.clone());
        hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut peer = peer.clone();
            peer.address = behind(peer.address, request.headers(), &shared.options.trusted_proxies);
            let body_timeout = shared.options.body_timeout;
            answer(router.clone(), request, peer, Arc::clone(&activity), (body_timeout, rest.clone()))
        })
    };
    let builder = builder(patience, streams, http2);
    let connection = builder.serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);
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
            () = tokio::time::sleep(patience.idle / 4) => {
                let still = activity.still_for();
                let idle = activity.in_flight() == 0;
                // An idle one gets a moment to hear of its end; one whose peer takes nothing gets none.
                let hopeless = if idle { still > patience.idle * 2 } else { still > options.stall_timeout };
                if hopeless {
                    return;
                }
                if idle && still > patience.idle && !ending {
                    ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Who stands behind a trusted proxy: the last address of `X-Forwarded-For` that is no proxy's. What stands before it
/// was written by strangers.
fn behind(address: IpAddr, headers: &HeaderMap, proxies: &[IpNet]) -> IpAddr {
    let trusted = |address: &IpAddr| proxies.iter().any(|proxy| proxy.contains(address));
    if !trusted(&address) {
        return address;
    }
    let lines: Vec<&str> =
        headers.get_all("x-forwarded-for").iter().filter_map(|line| line.to_str().ok()).collect();
    let mut nearest = address;
    for text in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
        let Ok(next) = text.trim().parse::<IpAddr>() else { break };
        nearest = next.to_canonical();
        if !trusted(&nearest) {
            break;
        }
    }
    nearest
}

async fn answer(
    router: Router,
    request: Request<Incoming>,
    peer: Peer,
    activity: Arc<Activity>,
    (body_timeout, streams): (Duration, Streams),
) -> Result<Response, Infallible> {
    let in_flight = activity.request();
    let slow = SlowBody::default();
    let http1 = request.version() < Version::HTTP_2;
    // Who asks first whether to send it (RFC 9110 section 10.1.1) is not told to.
    let rest = (!request.headers().contains_key(EXPECT)).then_some(streams);
    let mut request = request.map(|body| Body::new(TimelyBody::new(body, body_timeout, slow.clone(), rest)));
    request.extensions_mut().insert(peer);
    let mut response = router.oneshot(request).await?;
    if slow.was_slow() {
        response = Problem::of_status(
            StatusCode::REQUEST_TIMEOUT,
            Some(format!("the body did not come within {} s", body_timeout.as_secs())),
        )
        .into_response();
        if http1 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
    Ok(response.map(|inner| Body::new(AnswerBody { inner, in_flight })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_trusted_proxy_says_who_stands_behind_it() {
        let proxies: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap()];
        let of = |from: &str, forwarded: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in forwarded {
                headers.append("x-forwarded-for", HeaderValue::from_str(line).unwrap());
            }
            behind(from.parse().unwrap(), &headers, &proxies).to_string()
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
