//! Serving of HTTP requests on client connections.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use inbound::CountedFrames;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::next_head::HeadTimeouts;
use super::page::Body;
use super::streams::{Streams, TrackedBody};
use super::strict::{ClientStream, Exchanges};
use super::trailers::TrailedBody;

/// Maximum bytes of a request's header.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Maximum response bytes that wait for a client to read, for each HTTP/2 stream.
const SEND_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of a request body or WebSocket that wait for an upstream to read, for each HTTP/2 stream.
const STREAM_WINDOW: u32 = 256 << 10;
/// Maximum bytes of request bodies and WebSockets that wait for upstreams to read, for all streams of a connection. A slow upstream
/// must leave a part of this window to the other requests.
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Maximum pending streams that the client reset before they were processed (CVE-2023-44487, "rapid reset").
const RESETS_MAX: usize = 64;

/// Maximum streams that are reset because of client errors; one more closes the connection.
const ERRORS_MAX: usize = 128;

/// Options for serving a client connection.
pub struct Serving {
    /// Timeouts for a request's header, and for the next request (HTTP/1).
    pub head: HeadTimeouts,
    /// Idle timeout of an HTTP/2 connection without requests, and of a response that the client does not read.
    pub idle: Duration,
    /// Token that stops the acceptance of new requests when cancelled.
    pub stopping: CancellationToken,
}

/// Whether clients may open WebSockets over HTTP/2 (RFC 8441).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Websockets {
    /// Clients may open WebSockets.
    Offered,
    /// Clients may not open WebSockets.
    NotOffered,
}

/// Outcome of serving a connection.
#[derive(Debug)]
pub enum Served {
    /// The connection closed after its last response.
    Closed,
    /// The client broke the connection or violated the protocol.
    Broken(hyper::Error),
    /// The connection was cut off at the end of the shutdown.
    CutOff,
}

impl Served {
    fn of(ended: Result<(), hyper::Error>) -> Self {
        ended.map_or_else(Self::Broken, |()| Self::Closed)
    }
}

impl Serving {
    /// Serves HTTP/1 until the client closes the connection.
    pub async fn http1<S, A, F>(&self, stream: S, answer: A) -> Served
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        A: Fn(Request<Incoming>) -> F,
        F: Future<Output = Response<Body>>,
    {
        let exchanges = Exchanges::default();
        let stream = ClientStream::new(stream, exchanges.clone(), self.head);
        let serving = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            // `ClientStream` enforces both timeouts. This one only limits the library's own wait, which starts when a response is
            // written.
            .header_read_timeout(self.head.keep_alive + self.head.head)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(|request| exchanges.clone().exchange(request, &answer)),
            )
            .with_upgrades();
        let mut serving = std::pin::pin!(serving);
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            () = self.stopping.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        Served::of(ended)
    }

    /// Serves HTTP/2 until the client closes the connection.
    pub async fn http2<S, A, F>(&self, stream: S, answer: A, websockets: Websockets) -> Served
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        A: Fn(Request<Incoming>) -> F,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let counted =
            CountedFrames::new(stream, |flood| tracing::info!(%flood, "closed a client's connection"));
        let streams = Streams::new(self.idle);
        let mut http = hyper::server::conn::http2::Builder::new(streams.clone());
        if websockets == Websockets::Offered {
            http.enable_connect_protocol();
        }
        let serving = http
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .max_pending_accept_reset_streams(RESETS_MAX)
            .max_local_error_reset_streams(ERRORS_MAX)
            .max_send_buf_size(SEND_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .keep_alive_interval(self.head.head)
            .serve_connection(TokioIo::new(counted), service_fn(|request| answer(request).map(noted)));
        let mut serving = std::pin::pin!(serving);
        let ended = tokio::select! {
            ended = serving.as_mut() => ended,
            () = self.stopping.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
            // HTTP/2 pings keep the connection alive, but must not keep it open without requests.
            () = streams.idle() => {
                serving.as_mut().graceful_shutdown();
                match tokio::time::timeout(self.idle, serving).await {
                    Ok(ended) => ended,
                    Err(_) => return Served::CutOff,
                }
            }
        };
        Served::of(ended)
    }
}

impl Exchanges {
    /// Answers an HTTP/1 request and reports the outcome to its connection.
    fn exchange<A, F>(
        self,
        request: Request<Incoming>,
        answer: A,
    ) -> impl Future<Output = Result<Response<TrailedBody>, Infallible>>
    where
        A: Fn(Request<Incoming>) -> F,
        F: Future<Output = Response<Body>>,
    {
        let is_connect = request.method() == Method::CONNECT;
        self.begin_request(request.method() == Method::HEAD);
        answer(request).map(move |response| {
            let status = response.status();
            self.answered(status == StatusCode::SWITCHING_PROTOCOLS || is_connect && status.is_success());
            Ok(response.map(|body| TrailedBody::new(body, self)))
        })
    }
}

fn noted(answer: Response<Body>) -> Result<Response<TrackedBody>, Infallible> {
    Ok(answer.map(TrackedBody))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::page;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const HEAD: Duration = Duration::from_secs(10);
    const KEEP_ALIVE: Duration = Duration::from_secs(75);

    /// Returns a client of a service that needs `takes` for each response.
    fn client(takes: Duration) -> (DuplexStream, JoinHandle<Served>) {
        let (client, server) = duplex(4 << 10);
        let serving = Serving {
            head: HeadTimeouts { head: HEAD, keep_alive: KEEP_ALIVE },
            idle: Duration::from_secs(600),
            stopping: CancellationToken::new(),
        };
        let answer = move |_| async move {
            sleep(takes).await;
            page::empty(StatusCode::NO_CONTENT)
        };
        (client, tokio::spawn(async move { serving.http1(server, answer).await }))
    }

    async fn send_request(client: &mut DuplexStream) -> String {
        client.write_all(REQUEST).await.unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\n") {
            let count = client.read_buf(&mut response).await.unwrap();
            assert!(count > 0, "closed without an answer");
        }
        String::from_utf8(response).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn keep_alive_timeout_applies_before_the_first_and_between_requests() {
        let (mut client, served) = client(Duration::ZERO);
        for _ in 0..5 {
            sleep(KEEP_ALIVE - Duration::from_secs(1)).await;
            assert!(send_request(&mut client).await.starts_with("HTTP/1.1 204"));
        }
        let began = Instant::now();
        assert_eq!(client.read(&mut [0; 64]).await.unwrap(), 0);
        assert_eq!(began.elapsed().as_secs(), KEEP_ALIVE.as_secs());
        assert!(matches!(served.await.unwrap(), Served::Closed));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_header_is_closed_after_the_header_timeout() {
        const DRIP: Duration = Duration::from_secs(1);
        let (mut client, served) = client(Duration::ZERO);
        assert!(send_request(&mut client).await.starts_with("HTTP/1.1 204"));
        sleep(KEEP_ALIVE - Duration::from_secs(1)).await;
        let began = Instant::now();
        let mut bytes = REQUEST.iter();
        while let Some(byte) = bytes.next().filter(|_| !served.is_finished()) {
            let _ = client.write_all(&[*byte]).await;
            sleep(DRIP).await;
        }
        assert!(matches!(served.await.unwrap(), Served::Broken(_)));
        assert!((HEAD..=HEAD + 2 * DRIP).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn empty_lines_do_not_extend_the_connection() {
        let (mut client, served) = client(Duration::ZERO);
        let began = Instant::now();
        while !served.is_finished() {
            let _ = client.write_all(b"\r\n").await;
            sleep(HEAD / 2).await;
        }
        assert!(began.elapsed() <= KEEP_ALIVE + HEAD, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn response_may_take_longer_than_the_keep_alive_timeout() {
        let (mut client, _served) = client(10 * KEEP_ALIVE);
        for _ in 0..2 {
            assert!(send_request(&mut client).await.starts_with("HTTP/1.1 204"));
        }
    }
}
