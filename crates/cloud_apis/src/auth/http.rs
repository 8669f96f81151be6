//! One HTTP client for all calls to clouds: built once, connections kept, bodies bounded and read to their end, and what
//! it does counted.

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

/// Bytes of an answer: a page of a thousand certificates without their bytes is one megabyte.
const BODY_MAX: usize = 16 << 20;
/// From the first SYN to the end of the TLS handshake.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// From the request to the last byte; pools cut calls off before.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// Idle connections kept to one server: as many as the largest pool calls at once.
const IDLE_PER_SERVER_MAX: usize = 32;
/// How long one is kept: servers close theirs after a minute or so.
const IDLE_LIMIT: Duration = Duration::from_secs(50);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The system's roots cannot be used, or those given.
    #[error("the HTTP client cannot be set up")]
    Setup(#[source] reqwest::Error),
    /// What is to be sent is no request.
    #[error("not a request: {0}")]
    Request(String),
    /// No connection, or one that broke.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// More bytes than are read.
    #[error("the answer has more than {BODY_MAX} bytes")]
    TooLarge,
}

/// What the client did. A ratio of connections to requests near one means that connections are not kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HttpCounts {
    /// Requests sent.
    pub requests: u64,
    /// Connections made, each with a TLS handshake of its own where TLS is spoken.
    pub connections: u64,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    connections: AtomicU64,
}

/// The client. Clones share everything.
#[derive(Clone, Debug)]
pub struct HttpClient {
    client: reqwest::Client,
    counters: Arc<Counters>,
}

impl HttpClient {
    /// A client that trusts the system's roots, or only `roots` (DER) where there are any.
    ///
    /// # Errors
    /// [`HttpError::Setup`].
    pub fn new(roots: &[Vec<u8>]) -> Result<Self, HttpError> {
        Self::keeping(roots, IDLE_PER_SERVER_MAX)
    }

    /// The same, with another number of idle connections kept to one server: for measuring what keeping them saves.
    #[doc(hidden)]
    pub fn keeping(roots: &[Vec<u8>], idle_per_server: usize) -> Result<Self, HttpError> {
        let counters = Arc::new(Counters::default());
        let mut builder = reqwest::Client::builder()
            // Interfaces of clouds redirect nowhere; what does is no such interface.
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

    /// Sends a request and reads its answer to the end, so that the connection can be used again.
    ///
    /// # Errors
    /// [`HttpError`]; an answer with an error status is none.
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
        while let Some(piece) = answer.chunk().await.map_err(no_answer)? {
            if body.len() + piece.len() > BODY_MAX {
                return Err(HttpError::TooLarge);
            }
            body.extend_from_slice(&piece);
        }
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = answer.status();
        *response.headers_mut() = std::mem::take(answer.headers_mut());
        Ok(response)
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> HttpCounts {
        HttpCounts {
            requests: self.counters.requests.load(Relaxed),
            connections: self.counters.connections.load(Relaxed),
        }
    }
}

/// Counts connections as they are made.
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
