//! HTTP client for all cloud APIs. Reuses connections, limits body sizes, reads each body to its end and counts requests.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use reqwest::redirect::Policy;
use tower::{Layer, Service};

use super::chain;

/// Longest response body in bytes. A page of a thousand certificates without their contents is one megabyte.
const BODY_MAX: usize = 16 << 20;
/// Timeout from the first SYN to the end of the TLS handshake.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Timeout from the request to the last byte. Call pools have shorter timeouts.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// Maximum idle connections to one server: the number of concurrent calls of the largest pool.
const IDLE_PER_SERVER_MAX: usize = 32;
/// Idle timeout of a connection. Servers close idle connections after about a minute.
const IDLE_LIMIT: Duration = Duration::from_secs(50);

/// An HTTP request that failed without a complete response.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The system's roots, or the configured roots, cannot be loaded.
    #[error("the HTTP client cannot be set up")]
    Setup(#[source] reqwest::Error),
    /// The request is invalid.
    #[error("invalid request: {0}")]
    Request(String),
    /// The connection failed or was closed before the response ended.
    #[error("the server did not answer: {0}")]
    NoAnswer(String),
    /// The response body exceeds the size limit.
    #[error("the response has more than {BODY_MAX} bytes")]
    TooLarge,
}

/// Counters of the client. A ratio of connections to requests near one means that connections are not reused.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HttpCounts {
    /// Requests sent.
    pub requests: u64,
    /// Connections opened, each with its own TLS handshake for `https` URLs.
    pub connections: u64,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    connections: AtomicU64,
}

/// The shared HTTP client. Clones share connections and counters.
#[derive(Clone, Debug)]
pub struct HttpClient {
    client: reqwest::Client,
    counters: Arc<Counters>,
}

impl HttpClient {
    /// Creates a client that trusts the system's roots, or only `roots` (DER) if any are given.
    ///
    /// # Errors
    /// [`HttpError::Setup`].
    pub fn new(roots: &[Vec<u8>]) -> Result<Self, HttpError> {
        Self::with_idle_max(roots, IDLE_PER_SERVER_MAX)
    }

    /// Like [`Self::new`], with another limit of idle connections to one server. Used to measure the effect of connection reuse.
    #[doc(hidden)]
    pub fn with_idle_max(roots: &[Vec<u8>], idle_per_server: usize) -> Result<Self, HttpError> {
        let counters = Arc::new(Counters::default());
        let mut builder = reqwest::Client::builder()
            // Cloud APIs send no redirects.
            .redirect(Policy::none())
            .connect_timeout(CONNECT_LIMIT)
            .timeout(REQUEST_LIMIT)
            .pool_max_idle_per_host(idle_per_server)
            .pool_idle_timeout(IDLE_LIMIT)
            .connector_layer(Counting(counters.clone()));
        if !roots.is_empty() {
            let roots: Result<Vec<_>, _> =
                roots.iter().map(|der| reqwest::Certificate::from_der(der)).collect();
            builder = builder.tls_certs_only(roots.map_err(HttpError::Setup)?);
        }
        Ok(Self { client: builder.build().map_err(HttpError::Setup)?, counters })
    }

    /// Sends a request and reads the response to its end, so that the connection can be reused.
    ///
    /// # Errors
    /// [`HttpError`]; a response with an error status is not an error.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection in use.
    #[crate::boxed]
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request =
            request.try_into().map_err(|error: reqwest::Error| HttpError::Request(chain(&error)))?;
        self.counters.requests.fetch_add(1, Relaxed);
        let no_answer = |error: reqwest::Error| HttpError::NoAnswer(chain(&error));
        let mut answer = self.client.execute(request).await.map_err(no_answer)?;
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(no_answer)? {
            if body.len() + chunk.len() > BODY_MAX {
                return Err(HttpError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = answer.status();
        *response.headers_mut() = std::mem::take(answer.headers_mut());
        Ok(response)
    }

    /// Returns the counters of requests and connections, which all clones share.
    #[must_use]
    pub fn counts(&self) -> HttpCounts {
        HttpCounts {
            requests: self.counters.requests.load(Relaxed),
            connections: self.counters.connections.load(Relaxed),
        }
    }
}

/// A layer that counts new connections.
#[derive(Clone, Debug)]
struct Counting(Arc<Counters>);

impl<S> Layer<S> for Counting {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, counters: self.0.clone() }
    }
}

#[derive(Clone, Debug)]
struct Counted<S> {
    inner: S,
    counters: Arc<Counters>,
}

impl<S, R> Service<R> for Counted<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
    S::Response: 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>> + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (connecting, counters) = (self.inner.call(request), self.counters.clone());
        Box::pin(async move {
            let connected = connecting.await;
            counters.connections.fetch_add(u64::from(connected.is_ok()), Relaxed);
            connected
        })
    }
}
