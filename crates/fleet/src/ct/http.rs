//! A small HTTP server on loopback with a quota and configurable faults.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use inbound::{Acceptor, ConnectionHandler, ServiceTasks, Slot, Slots, WhenFull};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

use crate::FleetError;

/// Maximum concurrent connections; further ones wait in the listener's queue.
const CONNECTIONS_MAX: usize = 512;
/// Maximum queued faults; more are an error in the test and cause a panic.
const TROUBLES_MAX: usize = 4_096;

/// Requests that a service allows before it responds with 429.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quota {
    /// Requests per second; `None`: no limit.
    pub per_second: Option<u32>,
    /// Requests per minute; `None`: no limit.
    pub per_minute: Option<u32>,
    /// Maximum concurrent requests; `None`: no limit.
    pub in_flight: Option<u32>,
    /// Whether a 429 response has Retry-After (whole seconds, rounded up).
    pub retry_after: bool,
}

/// A fault of one response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trouble {
    /// No fault, for requests between those with faults.
    Nothing,
    /// Responds with this status and a short body.
    Status(u16),
    /// Responds with this status and Retry-After in seconds.
    StatusRetry(u16, u32),
    /// Closes the connection after half of the body.
    HalfBody,
    /// Sends half of the body with a matching Content-Length.
    HalfPage,
    /// Sends an empty body: `[]` or nothing.
    Empty,
    /// Never responds.
    Hang,
    /// Changes one byte of the body.
    Corrupt,
}

/// Counters of a simulated CT log or search service.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CtCounts {
    /// TCP connections accepted.
    pub connections: u64,
    /// Requests received.
    pub requests: u64,
    /// Requests that the quota rejected with 429.
    pub throttled: u64,
}

/// A response to send.
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) headers: Vec<(&'static str, String)>,
    /// The body for [`Trouble::Empty`].
    pub(crate) empty: &'static str,
    /// Fault of every response.
    pub(crate) trouble: Option<Trouble>,
    /// Delay before the response, in addition to the general latency.
    pub(crate) delay: Duration,
}

impl Page {
    pub(crate) fn ok(content_type: &str, body: Vec<u8>) -> Self {
        let headers = vec![("content-type", content_type.to_owned())];
        Self { status: 200, body, headers, empty: "", trouble: None, delay: Duration::ZERO }
    }

    pub(crate) fn status(status: u16, body: &str) -> Self {
        Self { status, ..Self::ok("text/plain", body.as_bytes().to_vec()) }
    }
}

/// A request: its path, and the value of its Authorization header.
pub(crate) struct CtRequest<'a> {
    pub(crate) uri: &'a hyper::Uri,
    pub(crate) authorization: Option<&'a str>,
    pub(crate) if_none_match: Option<&'a str>,
}

type Handler = dyn Fn(&CtRequest<'_>) -> Page + Send + Sync;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    tasks: ServiceTasks,
}

struct Shared {
    handler: Box<Handler>,
    latency: Duration,
    quota: Quota,
    windows: Mutex<QuotaWindows>,
    troubles: Mutex<VecDeque<Trouble>>,
    connections: AtomicU64,
    requests: AtomicU64,
    throttled: AtomicU64,
    under_way: AtomicU64,
}

#[derive(Default)]
struct QuotaWindows {
    second: Option<(Instant, u32)>,
    minute: Option<(Instant, u32)>,
}

impl Server {
    pub(crate) async fn start(
        quota: Quota,
        latency: Duration,
        handler: impl Fn(&CtRequest<'_>) -> Page + Send + Sync + 'static,
    ) -> Result<Self, FleetError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            handler: Box::new(handler),
            latency,
            quota,
            windows: Mutex::default(),
            troubles: Mutex::default(),
            connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            under_way: AtomicU64::new(0),
        });
        let tasks = ServiceTasks::default();
        let acceptor = Acceptor::new(&tasks, Slots::new(CONNECTIONS_MAX), WhenFull::Wait);
        acceptor.start(listener, shared.clone());
        Ok(Self { address, shared, tasks })
    }

    pub(crate) fn counts(&self) -> CtCounts {
        CtCounts {
            connections: self.shared.connections.load(Relaxed),
            requests: self.shared.requests.load(Relaxed),
            throttled: self.shared.throttled.load(Relaxed),
        }
    }

    /// Queues faults: one for each of the next requests.
    pub(crate) fn trouble(&self, troubles: &[Trouble]) {
        let mut waiting = self.shared.troubles.lock();
        assert!(waiting.len() + troubles.len() <= TROUBLES_MAX, "over {TROUBLES_MAX} troubles");
        waiting.extend(troubles);
    }

    pub(crate) async fn stop(self) {
        self.tasks.clone().close(Duration::ZERO).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

impl ConnectionHandler for Shared {
    async fn serve(self: Arc<Self>, stream: TcpStream, _: SocketAddr, _: &mut Slot) {
        self.connections.fetch_add(1, Relaxed);
        let service = service_fn(|request| answer(self.clone(), request));
        // A broken connection is the client's error.
        let _ =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }
}

type Body = BoxBody<Bytes, std::io::Error>;

/// A guard: the request counts as in progress until it is answered or aborted.
struct UnderWay<'a>(&'a Shared);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Relaxed);
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    shared.requests.fetch_add(1, Relaxed);
    let under_way = shared.under_way.fetch_add(1, Relaxed) + 1;
    let _guard = UnderWay(&shared);
    tokio::time::sleep(shared.latency).await;
    if let Some(wait) = shared.quota_wait(under_way) {
        shared.throttled.fetch_add(1, Relaxed);
        let mut page = Page::status(429, "Too Many Requests\n");
        if shared.quota.retry_after {
            page.headers.push(("retry-after", wait.as_secs_f64().ceil().to_string()));
        }
        return Ok(respond(page, None));
    }
    let trouble = shared.troubles.lock().pop_front();
    let page = match trouble {
        Some(Trouble::Hang) => std::future::pending().await,
        Some(Trouble::Status(status)) => Page::status(status, "trouble\n"),
        Some(Trouble::StatusRetry(status, seconds)) => {
            let mut page = Page::status(status, "trouble\n");
            page.headers.push(("retry-after", seconds.to_string()));
            page
        }
        _ => {
            let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
            (shared.handler)(&CtRequest {
                uri: request.uri(),
                authorization: text(hyper::header::AUTHORIZATION),
                if_none_match: text(hyper::header::IF_NONE_MATCH),
            })
        }
    };
    tokio::time::sleep(page.delay).await;
    let trouble = page.trouble.or(trouble);
    if trouble == Some(Trouble::Hang) {
        return std::future::pending().await;
    }
    Ok(respond(page, trouble))
}

impl Shared {
    /// Returns the time until the quota allows a request, if it is exceeded.
    fn quota_wait(&self, under_way: u64) -> Option<Duration> {
        let now = Instant::now();
        let mut windows = self.windows.lock();
        let second = count_in_window(&mut windows.second, now, Duration::from_secs(1), self.quota.per_second);
        let minute =
            count_in_window(&mut windows.minute, now, Duration::from_secs(60), self.quota.per_minute);
        let crowded = self.quota.in_flight.is_some_and(|most| under_way > u64::from(most));
        let crowded = crowded.then_some(Duration::from_secs(1));
        second.max(minute).max(crowded)
    }
}

/// Counts a request in a fixed window, as the real services do. Returns the time until the next window if the current one is used up.
fn count_in_window(
    window: &mut Option<(Instant, u32)>,
    now: Instant,
    length: Duration,
    most: Option<u32>,
) -> Option<Duration> {
    let most = most?;
    let (start, count) = match *window {
        Some((start, count)) if now < start + length => (start, count + 1),
        _ => (now, 1),
    };
    *window = Some((start, count));
    (count > most).then(|| start + length - now)
}

fn respond(mut page: Page, trouble: Option<Trouble>) -> Response<Body> {
    let half = page.body.len() / 2;
    match trouble {
        Some(Trouble::Empty) => page.body = page.empty.as_bytes().to_vec(),
        Some(Trouble::HalfPage) => page.body.truncate(half),
        Some(Trouble::Corrupt) => {
            if let Some(byte) = page.body.get_mut(half) {
                *byte ^= 0x40;
            }
        }
        _ => {}
    }
    let mut response = Response::builder()
        .status(StatusCode::from_u16(page.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    for (name, value) in page.headers {
        response = response.header(name, value);
    }
    let body: Body = if trouble == Some(Trouble::HalfBody) {
        page.body.truncate(half);
        let parts = [Ok(Frame::data(Bytes::from(page.body))), Err(std::io::Error::other("half way"))];
        BodyExt::boxed(StreamBody::new(futures_util::stream::iter(parts)))
    } else {
        Full::new(Bytes::from(page.body)).map_err(|never| match never {}).boxed()
    };
    response.body(body).unwrap_or_default()
}
