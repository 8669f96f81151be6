//! The HTTP server of all simulated clouds.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use inbound::{Acceptor, ConnectionHandler, ServiceTasks, Slot, Slots, WhenFull};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::ledger::Ledger;
use super::{CloudBehavior, OperationCounts, Quota};
use crate::random::Random;
use crate::serve::listen;

/// Maximum bytes of a request; real requests have a few kilobytes.
const REQUEST_MAX: usize = 1 << 20;
/// Maximum concurrent connections per server.
const CONNECTIONS_MAX: usize = 4_096;

/// Fault of a simulated cloud; stays until it is replaced.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Fault {
    /// No fault.
    #[default]
    None,
    /// Every response is a throttling error in the provider's format.
    Throttling,
    /// This number of responses are truncated, with a matching Content-Length.
    HalfPages(u32),
    /// Requests are read but never answered.
    Hanging,
    /// This number of requests get an error that their token has expired.
    ExpiredTokens(u32),
    /// Every response is an HTTP 500 error.
    Down,
    /// One bit of every signature is flipped.
    WrongSignatures,
}

/// A parsed request to a simulated cloud, with the faults of its response.
pub(crate) struct CloudRequest {
    pub(crate) method: http::Method,
    pub(crate) path: String,
    pub(crate) query: HashMap<String, String>,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
    /// Local address and port of the connection: `127.1.0.3:8443`.
    pub(crate) host: String,
    /// Whether to respond that the token has expired.
    pub(crate) expired: bool,
    /// Whether to respond with a throttling error, whatever the quota.
    pub(crate) throttled: bool,
    /// Whether the response must contain an invalid signature.
    pub(crate) wrong: bool,
}

impl CloudRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn form(&self) -> HashMap<String, String> {
        pairs(std::str::from_utf8(&self.body).unwrap_or_default())
    }
}

/// An HTTP response of a simulated cloud.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(status: u16, value: &serde_json::Value) -> Self {
        Self { status, headers: vec![("content-type", "application/json".into())], body: value.to_string() }
    }

    pub(crate) fn xml(status: u16, body: String) -> Self {
        Self { status, headers: vec![("content-type", "text/xml".into())], body }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn retry_after(self, quota: Quota) -> Self {
        match quota.retry_after {
            Some(seconds) => self.with("retry-after", seconds.to_string()),
            None => self,
        }
    }
}

/// Request handler of a simulated cloud.
pub(crate) trait Cloud: Send + Sync + 'static {
    fn answer(&self, cloud_request: &CloudRequest, gate: &Gate) -> Reply;
}

/// Quotas of a simulated cloud, and the ledger that counts requests against them.
pub(crate) struct Gate {
    manners: CloudBehavior,
    pub(crate) ledger: Ledger,
}

impl Gate {
    /// Counts a request of `operation` against the quota of `owner`, an account or server.
    pub(crate) fn enter(
        &self,
        cloud_request: &CloudRequest,
        operation: &'static str,
        owner: &str,
        documented: Quota,
    ) -> Result<(), Quota> {
        let own = self.manners.quotas.iter().find(|(name, _)| *name == operation);
        let quota = own.map_or(documented, |(_, quota)| *quota);
        if cloud_request.throttled {
            let none = Quota { per_second: Some(0), ..quota };
            return self.ledger.enter(operation, owner, none, &[]);
        }
        let throttled = self.manners.throttled_calls.iter().filter(|(name, _)| *name == operation);
        let throttled: Vec<u64> = throttled.map(|(_, number)| *number).collect();
        self.ledger.enter(operation, owner, quota, &throttled)
    }

    pub(crate) fn page_max(&self) -> usize {
        self.manners.page_max
    }
}

struct Shared {
    cloud: Box<dyn Cloud>,
    gate: Gate,
    delays: Mutex<Random>,
    fault: Mutex<Fault>,
    connections: AtomicU64,
    requests: AtomicU64,
}

/// A running server. Stops when dropped.
pub(crate) struct Server {
    port: u16,
    shared: Arc<Shared>,
    tasks: ServiceTasks,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

impl Server {
    /// Serves `cloud` on every address of 127.0.0.0/8, over TLS if `tls` is given.
    pub(crate) fn start(
        cloud: impl Cloud,
        manners: CloudBehavior,
        tls: Option<Arc<ServerConfig>>,
    ) -> io::Result<Self> {
        let listener = listen(0)?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            cloud: Box::new(cloud),
            delays: Mutex::new(Random::new(manners.seed)),
            gate: Gate { manners, ledger: Ledger::default() },
            fault: Mutex::default(),
            connections: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        });
        let tasks = ServiceTasks::default();
        let connections = Connections { shared: shared.clone(), tls: tls.map(TlsAcceptor::from) };
        let acceptor = Acceptor::new(&tasks, Slots::new(CONNECTIONS_MAX), WhenFull::Wait);
        acceptor.start(listener, Arc::new(connections));
        Ok(Self { port, shared, tasks })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        *self.shared.fault.lock() = fault;
    }

    /// Returns the counters by operation and owner of the quota.
    pub(crate) fn counts(&self) -> std::collections::BTreeMap<(&'static str, String), OperationCounts> {
        self.shared.gate.ledger.counts()
    }

    /// Returns the number of accepted connections and of requests so far.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        (self.shared.connections.load(Relaxed), self.shared.requests.load(Relaxed))
    }
}

/// State for serving connections, over TLS if it is configured.
struct Connections {
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
}

impl ConnectionHandler for Connections {
    async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, _: &mut Slot) {
        let Ok(local) = stream.local_addr() else { return };
        if !peer.ip().is_loopback() {
            return;
        }
        match &self.tls {
            // A failed handshake is the client's error.
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    serve(stream, local, &self.shared).await;
                }
            }
            None => serve(stream, local, &self.shared).await,
        }
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    local: SocketAddr,
    shared: &Arc<Shared>,
) {
    shared.connections.fetch_add(1, Relaxed);
    let shared = shared.clone();
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(respond(request, local, &shared).await) }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(request: Request<Incoming>, local: SocketAddr, shared: &Shared) -> Response<Full<Bytes>> {
    shared.requests.fetch_add(1, Relaxed);
    let fault = shared.next_fault();
    if fault == Fault::Hanging {
        return std::future::pending().await;
    }
    let (parts, body) = request.into_parts();
    let body =
        Limited::new(body, REQUEST_MAX).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let cloud_request = CloudRequest {
        method: parts.method,
        path: decoded(parts.uri.path()),
        query: pairs(parts.uri.query().unwrap_or_default()),
        headers: parts.headers,
        body,
        host: local.to_string(),
        expired: matches!(fault, Fault::ExpiredTokens(_)),
        throttled: fault == Fault::Throttling,
        wrong: fault == Fault::WrongSignatures,
    };
    let reply = match fault {
        Fault::Down => Reply::json(500, &serde_json::json!({"message": "internal failure"})),
        _ => shared.cloud.answer(&cloud_request, &shared.gate),
    };
    let delay = shared.delays.lock().duration(&shared.gate.manners.latency);
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    let mut body = Bytes::from(reply.body);
    if matches!(fault, Fault::HalfPages(_)) {
        body.truncate(body.len() / 2);
    }
    response.body(Full::new(body)).unwrap_or_default()
}

impl Shared {
    /// Returns the fault of this request. Counts down faults for a limited number of requests.
    fn next_fault(&self) -> Fault {
        let mut fault = self.fault.lock();
        let now = *fault;
        *fault = match now {
            Fault::HalfPages(left) | Fault::ExpiredTokens(left) if left <= 1 => Fault::None,
            Fault::HalfPages(left) => Fault::HalfPages(left - 1),
            Fault::ExpiredTokens(left) => Fault::ExpiredTokens(left - 1),
            other => other,
        };
        now
    }
}

/// Parses `application/x-www-form-urlencoded`.
fn pairs(text: &str) -> HashMap<String, String> {
    text.split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(&name.replace('+', " ")), decoded(&value.replace('+', " ")))
        })
        .collect()
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
