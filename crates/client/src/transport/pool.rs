//! One request over the connection pool. The response is read completely, up to a limit.

use api::credhub::ErrorView;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use http::{HeaderMap, Method, StatusCode};
use reqwest::{Certificate, Identity, Url};
use serde_json::Value;
use zeroize::Zeroizing;

use super::counting::CountingLayer;
use crate::Error;
use crate::stats::Counters;

/// Maximum bytes of a response. A batch of the largest values is split in halves.
const ANSWER_MAX: usize = 64 << 20;

/// Maximum characters shown of an error response that is not from the store but, for example, from a proxy.
const REFUSAL_CHARS_MAX: usize = 300;

/// Timeout for a TCP connection and its TLS handshake.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Interval of pings on a connection. A connection without a timely response to a ping is replaced.
const PING_EVERY: Duration = Duration::from_secs(20);

const PING_MAX: Duration = Duration::from_secs(10);

/// Address of the store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Endpoint {
    /// `https://HOST:PORT`.
    Url(Url),
    /// `unix:PATH`: an agent on this machine.
    Socket(std::path::PathBuf),
}

impl Endpoint {
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Socket(path.into()));
        }
        let url = Url::parse(text.trim_end_matches('/'));
        match url {
            // The token is sent with each request, so it must never be sent unencrypted.
            Ok(url) if url.scheme() == "https" && url.has_host() => Ok(Self::Url(url)),
            _ => Err(Error::invalid(format_args!("{text:?} is neither https://HOST:PORT nor unix:PATH"))),
        }
    }

    fn base(&self) -> Result<Url, Error> {
        match self {
            Self::Url(url) => Ok(url.clone()),
            Self::Socket(_) => Url::parse("http://localhost").map_err(Error::invalid),
        }
    }
}

/// A request to the store: method, path, headers and body, and how its errors are handled.
#[derive(Clone, Default)]
pub(crate) struct StoreRequest {
    pub(crate) method: Method,
    /// Path and query, percent-encoded.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    /// The body, shared with the task that sends it. A secret in it is wiped with the last reference (see [`wiped`]).
    pub(crate) body: Option<Bytes>,
    /// Whether to send the request only once, because it changes something.
    pub(crate) single_attempt: bool,
    /// Whether the request is forwarded for another client. Its error does not mean that the store is unavailable for others.
    pub(crate) forwarded: bool,
}

/// A response that was read completely.
pub(crate) struct StoreResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Zeroizing<Vec<u8>>,
}

impl StoreResponse {
    pub(crate) fn json(&self) -> Result<Value, Error> {
        serde_json::from_slice(&self.body)
            .map_err(|_| Error::Unavailable(format!("its response ({}) is not JSON", self.status)))
    }

    /// Returns the error code (`error`) and the text to show (`error_description` of an OAuth error; otherwise the error code). If
    /// the body is not JSON, both are the start of the body.
    pub(super) fn refusal(&self) -> (String, String) {
        let raw = || String::from_utf8_lossy(&self.body).chars().take(REFUSAL_CHARS_MAX).collect();
        let ErrorView { error, error_description } = serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| ErrorView { error: raw(), error_description: None });
        let shown = error_description.unwrap_or_else(|| error.clone());
        (error, shown)
    }

    /// Returns the response if successful, or the error of its status.
    pub(crate) fn checked(self) -> Result<Self, Error> {
        let status = self.status;
        if status.is_success() {
            return Ok(self);
        }
        let (_, text) = self.refusal();
        Err(match status {
            StatusCode::UNAUTHORIZED => Error::Denied(text),
            _ if is_transient(status) => Error::Unavailable(format!("{status}: {text}")),
            _ => Error::Refused { status: status.as_u16(), text },
        })
    }
}

/// Returns a buffer of these bytes that is wiped when its last reference is dropped.
pub(crate) fn wiped(bytes: Zeroizing<Vec<u8>>) -> Bytes {
    Bytes::from_owner(bytes)
}

/// Returns whether a status is temporary and independent of the request: the store or its database is unavailable, or there are too many
/// requests. Other statuses, including 500, depend on the request: one credential that cannot be decrypted does not affect the others.
pub(crate) fn is_transient(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
            // The store's disk is full, so it cannot record the access to a value.
            | StatusCode::INSUFFICIENT_STORAGE
    )
}

/// A pool of connections to the store. It sends each request once, with the given token.
pub(crate) struct Pool {
    http: reqwest::Client,
    base: Url,
    pub(crate) counters: Arc<Counters>,
}

impl Pool {
    /// Creates the pool without connecting.
    pub(super) fn new(
        endpoint: &Endpoint,
        roots: Option<&[u8]>,
        identity: Option<&[u8]>,
        counters: Arc<Counters>,
    ) -> Result<Self, Error> {
        let base = endpoint.base()?;
        let layer = CountingLayer { counters: Arc::clone(&counters), tls: base.scheme() == "https" };
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_MAX)
            // One connection is enough for all requests. Without prior knowledge, each request before the first connection is ready
            // would open another one.
            .http2_prior_knowledge()
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_MAX)
            .http2_keep_alive_while_idle(true)
            .pool_idle_timeout(None)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("bulla-client/", env!("CARGO_PKG_VERSION")))
            .connector_layer(layer);
        if let Endpoint::Socket(path) = endpoint {
            builder = builder.unix_socket(path.as_path()).no_proxy();
        }
        if let Some(roots) = roots {
            let roots = Certificate::from_pem_bundle(roots).map_err(unusable("roots"))?;
            builder = builder.tls_certs_only(roots);
        }
        if let Some(identity) = identity {
            builder = builder.identity(Identity::from_pem(identity).map_err(unusable("client certificate"))?);
        }
        Ok(Self { http: builder.build().map_err(unusable("connection's settings"))?, base, counters })
    }

    /// Sends one request and reads the whole response.
    pub(crate) async fn exchange(
        &self,
        request: &StoreRequest,
        token: Option<&keys::Secret>,
    ) -> Result<StoreResponse, Error> {
        read(self.send(request, token).await?).await
    }

    pub(super) async fn send(
        &self,
        request: &StoreRequest,
        token: Option<&keys::Secret>,
    ) -> Result<reqwest::Response, Error> {
        // Joined as text, so that percent-encoded parts of names stay unchanged.
        let text = format!("{}{}", self.base.as_str().trim_end_matches('/'), request.path);
        let url = Url::parse(&text).map_err(Error::invalid)?;
        let mut outgoing = self.http.request(request.method.clone(), url).headers(request.headers.clone());
        if let Some(token) = token {
            outgoing = outgoing.bearer_auth(token.expose());
        }
        if let Some(body) = &request.body {
            outgoing = outgoing.body(body.clone());
        }
        self.counters.requests.add();
        outgoing.send().await.map_err(connection_error)
    }
}

/// Reads a response to its end.
pub(super) async fn read(mut response: reqwest::Response) -> Result<StoreResponse, Error> {
    let status = response.status();
    let headers = response.headers().clone();
    let expected = response.content_length().unwrap_or(0).min(ANSWER_MAX as u64);
    // Allocate the announced size first: a growing buffer would leave copies of secrets in memory.
    let mut body = Zeroizing::new(Vec::with_capacity(usize::try_from(expected).unwrap_or(0)));
    while let Some(chunk) = response.chunk().await.map_err(connection_error)? {
        if body.len() + chunk.len() > ANSWER_MAX {
            return Err(Error::Refused {
                status: StatusCode::PAYLOAD_TOO_LARGE.as_u16(),
                text: format!("the response has more than {ANSWER_MAX} bytes"),
            });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(StoreResponse { status, headers, body })
}

fn connection_error(error: reqwest::Error) -> Error {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    Error::Unavailable(text)
}

fn unusable(what: &'static str) -> impl Fn(reqwest::Error) -> Error {
    move |error| Error::invalid(format_args!("cannot use the {what}: {}", error.without_url()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_429_503_and_507_are_temporary_but_500_and_404_are_not() {
        for (status, passing) in [(429, true), (500, false), (503, true), (507, true), (404, false)] {
            assert_eq!(is_transient(StatusCode::from_u16(status).unwrap()), passing, "{status}");
        }
    }

    #[test]
    fn endpoint_must_be_https_or_a_unix_socket() {
        assert!(
            Endpoint::parse("https://store.example:8844/").is_ok() && Endpoint::parse("unix:/run/s").is_ok()
        );
        for not in [
            "http://store.example:8844",
            "http://127.0.0.1:8844",
            "ftp://store.example",
            "store.example:8844",
        ] {
            assert!(Endpoint::parse(not).is_err(), "{not}");
        }
    }
}
