//! HTTP client for services: one per service, with guarded destinations, size limits and connection reuse.
//!
//! Each response is read to its end, or its connection is closed: a connection with unread data cannot be reused.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use reqwest::{Url, redirect};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use x509::UnixTime;

use crate::Deadline;
use crate::guard::{self, Guard, Refused};
use crate::resolve::Resolver;

/// Timeout for opening a connection, including TLS.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Idle timeout of a connection. Servers close idle connections after one to five minutes.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// Longest accepted Retry-After: one day.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);
/// Maximum characters of a response's text in an error.
const EXCERPT_MAX: usize = 200;

/// Maximum redirects that [`Client::get_with_redirects`] follows for one response.
pub const REDIRECTS_MAX: usize = 3;

/// All bytes except the unreserved ones (RFC 3986 section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes a text for a query value, without allocating.
#[must_use]
pub fn percent_encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

/// Trusted roots and allowed addresses of an HTTP client.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Trusted root certificates, DER; `None`: the system's.
    pub roots: Option<Vec<Vec<u8>>>,
    /// Rules for the addresses to which connections are allowed.
    pub guard: Guard,
}

/// An HTTP client. Create it once; clones share connections.
#[derive(Clone)]
pub struct Client {
    inner: reqwest::Client,
    guard: Guard,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// Reason why an HTTP client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A root certificate is invalid.
    #[error("a trusted root cannot be used: {0}")]
    Root(#[source] rustls::Error),
    /// The TLS library rejects its default configuration.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The HTTP library returned an error.
    #[error("the HTTP client cannot be created: {0}")]
    Http(String),
}

/// Reason why an HTTP request failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HttpError {
    /// The guard does not allow the URL. Operator: correct the URL. A retry does not help.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A header value contains invalid characters. A retry does not help.
    #[error("invalid character in the value of header {0}")]
    Header(&'static str),
    /// The response is a redirect that is not followed.
    #[error("{host} {reason}")]
    Redirected {
        /// The host that sent the redirect.
        host: String,
        /// Reason why the redirect is not followed.
        reason: &'static str,
    },
    /// The response was incomplete at the timeout. The request can be retried.
    #[error("{host} did not answer in time")]
    TimedOut {
        /// Host that did not respond in time.
        host: String,
    },
    /// The connection failed or was lost. The request can be retried.
    #[error("{host}: {reason}")]
    Unreachable {
        /// Host to which the connection failed.
        host: String,
        /// Description of the innermost causes.
        reason: String,
    },
    /// The response exceeds the size limit; reading was stopped.
    #[error("the response of {host} is larger than {limit} bytes")]
    TooLong {
        /// Host that sent the response.
        host: String,
        /// The size limit in bytes.
        limit: usize,
    },
}

/// A complete response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status. An error status is not an [`HttpError`].
    pub status: StatusCode,
    /// Response headers.
    pub headers: HeaderMap,
    /// Body as sent, not decompressed.
    pub body: Bytes,
}

impl Client {
    /// Creates a client that resolves names with `resolver`. It follows no redirects and uses no proxies.
    ///
    /// # Errors
    /// [`SetupError`].
    pub fn new(resolver: &Resolver, options: &Options) -> Result<Self, SetupError> {
        let guard = options.guard;
        let inner = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(options)?)
            .dns_resolver(guard::resolver(resolver.clone(), guard))
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .connect_timeout(CONNECT_LIMIT)
            .pool_idle_timeout(IDLE_LIMIT)
            .user_agent(concat!("bulla/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| SetupError::Http(chain_of(&error)))?;
        Ok(Self { inner, guard })
    }

    /// Sends a GET request for `url` and reads at most `body_max` bytes of the response, with any status.
    ///
    /// # Errors
    /// [`HttpError`].
    ///
    /// # Cancellation
    /// Dropping the future aborts the request; with HTTP/1.1 it closes the connection.
    #[crate::boxed]
    pub async fn get(
        &self,
        url: &str,
        headers: &[(&'static str, &str)],
        body_max: usize,
        deadline: Deadline,
    ) -> Result<Reply, HttpError> {
        let url = self.guard.url(url)?;
        let host = url.authority().to_owned();
        let mut request = self.inner.get(url);
        for (name, value) in headers {
            let mut value = HeaderValue::from_str(value).map_err(|_| HttpError::Header(name))?;
            value.set_sensitive(*name == "authorization");
            request = request.header(HeaderName::from_static(name), value);
        }
        let failed = |error: reqwest::Error| match find_refused(&error) {
            Some(refused) => HttpError::Refused(refused),
            None => HttpError::Unreachable { host: host.clone(), reason: chain_of(&error.without_url()) },
        };
        let exchange = async {
            let mut response = request.send().await.map_err(failed)?;
            let (status, headers) = (response.status(), response.headers().clone());
            // A response with a too large Content-Length is not read.
            if response.content_length().is_some_and(|length| length > body_max as u64) {
                return Err(HttpError::TooLong { host: host.clone(), limit: body_max });
            }
            let mut body = BytesMut::new();
            while let Some(chunk) = response.chunk().await.map_err(failed)? {
                if body.len() + chunk.len() > body_max {
                    return Err(HttpError::TooLong { host: host.clone(), limit: body_max });
                }
                body.extend_from_slice(&chunk);
            }
            Ok(Reply { status, headers, body: body.freeze() })
        };
        deadline.bound(exchange).await.map_err(|_| HttpError::TimedOut { host: host.clone() })?
    }

    /// Like [`Client::get`], but follows up to [`REDIRECTS_MAX`] redirects (RFC 9110 section 15.4), each with the same guard and
    /// within the same deadline. Redirects from https to http are rejected. `headers` are sent to every host, so they must not
    /// contain secrets.
    ///
    /// # Errors
    /// [`HttpError`]; [`HttpError::Redirected`] for too many redirects, a redirect without a valid Location, and one from https to
    /// http.
    ///
    /// # Cancellation
    /// See [`Client::get`].
    #[crate::boxed]
    pub async fn get_with_redirects(
        &self,
        url: &str,
        headers: &[(&'static str, &str)],
        body_max: usize,
        deadline: Deadline,
    ) -> Result<Reply, HttpError> {
        debug_assert!(headers.iter().all(|(name, _)| *name != "authorization"), "no secret goes everywhere");
        let mut url = self.guard.url(url)?;
        for left in (0..=REDIRECTS_MAX).rev() {
            let reply = self.get(url.as_str(), headers, body_max, deadline).await?;
            if !is_redirect(reply.status) {
                return Ok(reply);
            }
            let next = if left > 0 { redirect_target(&url, reply.header("location")) } else { Err(TOO_MANY) };
            let host = || url.authority().to_owned();
            let next = next.map_err(|reason| HttpError::Redirected { host: host(), reason })?;
            url = self.guard.url(next.as_str())?;
        }
        Err(HttpError::Redirected { host: url.authority().to_owned(), reason: TOO_MANY })
    }
}

/// Reason for not following the last redirect.
const TOO_MANY: &str = "redirects too many times";

/// Returns the target of a redirect from `url`, or the reason for not following it. The guard checks the target separately.
fn redirect_target(url: &Url, location: Option<&str>) -> Result<Url, &'static str> {
    let next =
        location.and_then(|target| url.join(target).ok()).ok_or("redirects without a valid Location")?;
    if url.scheme() == "https" && next.scheme() != "https" {
        return Err("redirects from https to http");
    }
    Ok(next)
}

/// Returns whether the status is a redirect to follow: not 300, which offers a choice to people, and not 304.
fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

impl Reply {
    /// Returns the value of a header as text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the Retry-After delay; see [`retry_after`].
    #[must_use]
    pub fn retry_after(&self, now_seconds: i64) -> Option<Duration> {
        retry_after(&self.headers, now_seconds)
    }

    /// Returns the start of the body without control characters, for errors.
    #[must_use]
    pub fn excerpt(&self) -> String {
        excerpt(&String::from_utf8_lossy(&self.body))
    }
}

/// Returns the Retry-After delay (RFC 9110 section 10.2.3). The header contains seconds, or a date, which is compared with
/// `now_seconds` (since 1970-01-01 UTC). At most a day; a time in the past means no delay.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now_seconds: i64) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let seconds = http_date(text)?.since(UnixTime(now_seconds));
            Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
        }
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// Parses an IMF-fixdate (RFC 9110 section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`. The two obsolete formats are not supported.
fn http_date(text: &str) -> Option<UnixTime> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut parts = text.split_ascii_whitespace().skip(1);
    let day = parts.next()?.parse().ok()?;
    let month = parts.next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    let year = parts.next()?.parse().ok()?;
    let mut clock = parts.next()?.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    (parts.next()? == "GMT").then(|| UnixTime::from_civil(year, month, day, hour, minute, second))?
}

fn tls(options: &Options) -> Result<rustls::ClientConfig, SetupError> {
    let mut store = RootCertStore::empty();
    match &options.roots {
        Some(roots) => {
            for root in roots {
                store.add(CertificateDer::from(root.clone())).map_err(SetupError::Root)?;
            }
        }
        None => {
            let system = crate::tls::system_roots().into_iter().map(CertificateDer::from);
            store.add_parsable_certificates(system);
        }
    }
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(SetupError::Tls)?
        .with_root_certificates(store)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

/// Returns the start of a text without control characters.
fn excerpt(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(EXCERPT_MAX).collect()
}

/// Finds the guard's error among the causes: names are checked after resolution, inside the HTTP library.
fn find_refused(error: &reqwest::Error) -> Option<Refused> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(refused) = inner.downcast_ref::<Refused>() {
            return Some(refused.clone());
        }
        cause = inner.source();
    }
    None
}

/// Formats an error and its causes as one line.
fn chain_of(error: &dyn std::error::Error) -> String {
    excerpt(&telemetry::chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_from_https_to_http_are_rejected() {
        for (url, location, next) in [
            ("http://a.example/1", Some("http://b.example/2"), Ok("http://b.example/2")),
            ("http://a.example/1", Some("https://a.example/1"), Ok("https://a.example/1")),
            ("https://a.example/1", Some("https://b.example/"), Ok("https://b.example/")),
            ("https://a.example/1", Some("http://a.example/1"), Err("redirects from https to http")),
            ("https://a.example/1", Some("ftp://a.example/1"), Err("redirects from https to http")),
            ("http://a.example/x/1", Some("2"), Ok("http://a.example/x/2")),
            ("https://a.example/x/1", Some("//b.example/2"), Ok("https://b.example/2")),
            ("http://a.example/1", Some("http://["), Err("redirects without a valid Location")),
            ("http://a.example/1", None, Err("redirects without a valid Location")),
        ] {
            let found = redirect_target(&url.parse().unwrap(), location);
            assert_eq!(found.as_ref().map(Url::as_str).map_err(|why| *why), next, "{url} {location:?}");
        }
        for (status, leads) in [(200, false), (300, false), (301, true), (304, false), (308, true)] {
            assert_eq!(is_redirect(StatusCode::from_u16(status).unwrap()), leads, "{status}");
        }
    }

    #[test]
    fn retry_after_is_parsed_as_seconds_or_http_date() {
        const NOW: i64 = 784_111_777 - 90; // 06 Nov 1994 08:49:37 GMT less a minute and a half
        let seconds = |text| {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, HeaderValue::from_static(text))]);
            retry_after(&headers, NOW).map(|wait| wait.as_secs())
        };
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(90));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0), "a moment past means now");
        assert_eq!(seconds("99999999999"), Some(86_400));
        for odd in ["soon", "-1", "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 CET", ""] {
            assert_eq!(seconds(odd), None, "{odd}");
        }
    }
}
