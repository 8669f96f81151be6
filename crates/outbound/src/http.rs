//! An HTTP client for services that are read from: one a service, guarded, bounded, its connections reused.
//!
//! Every answer is read to its end or its connection is given up: a body left in the pipe is a connection that cannot
//! be used again.

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

/// To open a connection, TLS included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept. Services close theirs after one to five minutes.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// Longest Retry-After believed, one day.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);
/// Letters of a foreign text that come into an error.
const EXCERPT_MAX: usize = 200;

/// Redirects that [`Client::get_following`] follows for one answer.
pub const REDIRECTS_MAX: usize = 3;

/// All bytes but the unreserved ones (RFC 3986 section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A text as a value of a query. Its parts are pieces of `text` and constants: nothing is copied.
#[must_use]
pub fn percent_encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

/// How to connect.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The only certificates trusted, DER; `None`: the system's.
    pub roots: Option<Vec<Vec<u8>>>,
    /// The addresses that may be reached.
    pub guard: Guard,
}

/// A client. Build it once; clones share connections.
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

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A root that is no certificate.
    #[error("a trusted root cannot be used: {0}")]
    Root(#[source] rustls::Error),
    /// The TLS library refuses its own defaults.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
    /// The HTTP library refuses.
    #[error("no HTTP client: {0}")]
    Http(String),
}

/// Why there is no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HttpError {
    /// Operator: correct the URL. Retrying cannot help.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A header value with letters that do not belong there. Retrying cannot help.
    #[error("invalid character in the value of header {0}")]
    Header(&'static str),
    /// A redirect that is not followed.
    #[error("{host} {reason}")]
    Redirected {
        /// The host that redirects.
        host: String,
        /// Why that is not followed.
        reason: &'static str,
    },
    /// The response was incomplete at the timeout. The request can be retried.
    #[error("{host} did not answer in time")]
    TimedOut {
        /// The host.
        host: String,
    },
    /// No connection, or one lost half way. Safe to ask again.
    #[error("{host}: {reason}")]
    Unreachable {
        /// The host.
        host: String,
        /// The innermost causes.
        reason: String,
    },
    /// The answer is longer than it may be; it was not read on.
    #[error("the answer of {host} is larger than {limit} bytes")]
    TooLong {
        /// The host.
        host: String,
        /// Bytes.
        limit: usize,
    },
}

/// An answer, read whole.
#[derive(Clone, Debug)]
pub struct Reply {
    /// As sent.
    pub status: StatusCode,
    /// As sent.
    pub headers: HeaderMap,
    /// As sent: nothing is unpacked.
    pub body: Bytes,
}

impl Client {
    /// A client that resolves by `resolver`. Redirects are not followed, proxies not used.
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

    /// Gets `url`, whatever the status of the answer, and reads at most `body_max` bytes of it.
    ///
    /// # Errors
    /// [`HttpError`].
    ///
    /// # Cancellation
    /// Dropping the future gives up the request; on HTTP/1.1 its connection too.
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
        let failed = |error: reqwest::Error| match refused_in(&error) {
            Some(refused) => HttpError::Refused(refused),
            None => HttpError::Unreachable { host: host.clone(), reason: chain_of(&error.without_url()) },
        };
        let exchange = async {
            let mut response = request.send().await.map_err(failed)?;
            let (status, headers) = (response.status(), response.headers().clone());
            // What says that it is too long need not be begun.
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

    /// [`Client::get`], following up to [`REDIRECTS_MAX`] redirects (RFC 9110 section 15.4), each through the same guard and
    /// within the same deadline. From https none leads to http. `headers` go along to every host, so none may be a secret.
    ///
    /// # Errors
    /// [`HttpError`]; [`HttpError::Redirected`] for one redirect too many, one without a place, and one from https to http.
    ///
    /// # Cancellation
    /// As [`Client::get`].
    #[crate::boxed]
    pub async fn get_following(
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
            if !redirects(reply.status) {
                return Ok(reply);
            }
            let next = if left > 0 { next_place(&url, reply.header("location")) } else { Err(TOO_MANY) };
            let host = || url.authority().to_owned();
            let next = next.map_err(|reason| HttpError::Redirected { host: host(), reason })?;
            url = self.guard.url(next.as_str())?;
        }
        Err(HttpError::Redirected { host: url.authority().to_owned(), reason: TOO_MANY })
    }
}

/// Why the last redirect is not followed.
const TOO_MANY: &str = "is one redirect too many";

/// Where a redirect from `url` leads; why that is not followed. Whether it may be connected to is the guard's to say.
fn next_place(url: &Url, location: Option<&str>) -> Result<Url, &'static str> {
    let next = location.and_then(|place| url.join(place).ok()).ok_or("redirects to nowhere")?;
    if url.scheme() == "https" && next.scheme() != "https" {
        return Err("redirects from https to http");
    }
    Ok(next)
}

/// Whether an answer names another place of the same thing: not 300, whose choice is for people, nor 304.
fn redirects(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

impl Reply {
    /// A header's text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// See [`retry_after`].
    #[must_use]
    pub fn retry_after(&self, now_seconds: i64) -> Option<Duration> {
        retry_after(&self.headers, now_seconds)
    }

    /// The start of the body without control characters, fit to stand in an error.
    #[must_use]
    pub fn excerpt(&self) -> String {
        excerpt(&String::from_utf8_lossy(&self.body))
    }
}

/// Retry-After (RFC 9110 section 10.2.3), seconds or a date held against `now_seconds` (since 1970 UTC); at most a
/// day. A moment past means now.
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

/// An IMF-fixdate (RFC 9110 section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`. The two obsolete forms are not read.
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

/// The start of a foreign text without control characters.
fn excerpt(text: &str) -> String {
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(EXCERPT_MAX).collect()
}

/// The guard's refusal among the causes: a name is looked at once it is resolved, inside the HTTP library.
fn refused_in(error: &reqwest::Error) -> Option<Refused> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(refused) = inner.downcast_ref::<Refused>() {
            return Some(refused.clone());
        }
        cause = inner.source();
    }
    None
}

/// An error and its causes in one line.
fn chain_of(error: &dyn std::error::Error) -> String {
    excerpt(&telemetry::chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_from_http_to_https_and_never_back() {
        for (url, location, next) in [
            ("http://a.example/1", Some("http://b.example/2"), Ok("http://b.example/2")),
            ("http://a.example/1", Some("https://a.example/1"), Ok("https://a.example/1")),
            ("https://a.example/1", Some("https://b.example/"), Ok("https://b.example/")),
            ("https://a.example/1", Some("http://a.example/1"), Err("redirects from https to http")),
            ("https://a.example/1", Some("ftp://a.example/1"), Err("redirects from https to http")),
            ("http://a.example/x/1", Some("2"), Ok("http://a.example/x/2")),
            ("https://a.example/x/1", Some("//b.example/2"), Ok("https://b.example/2")),
            ("http://a.example/1", Some("http://["), Err("redirects to nowhere")),
            ("http://a.example/1", None, Err("redirects to nowhere")),
        ] {
            let found = next_place(&url.parse().unwrap(), location);
            assert_eq!(found.as_ref().map(Url::as_str).map_err(|why| *why), next, "{url} {location:?}");
        }
        for (status, leads) in [(200, false), (300, false), (301, true), (304, false), (308, true)] {
            assert_eq!(redirects(StatusCode::from_u16(status).unwrap()), leads, "{status}");
        }
    }

    #[test]
    fn retry_after_in_both_forms() {
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
