//! An HTTPS client for a service that an operator configured. It guards addresses, limits the response size and has a deadline for
//! each request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use outbound::guard::{self, Guard};
use outbound::http::retry_after;
use outbound::resolve::Resolver;
use reqwest::{Url, redirect};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use x509::UnixTime;

use crate::config::HttpConfig;
use crate::error::HttpError;

/// Maximum bytes of a response body. Certificate chains with many alternates have tens of thousands of bytes.
const BODY_MAX: usize = 1024 * 1024;
/// Maximum redirects that are followed, all to the same host.
const REDIRECTS_MAX: usize = 3;
/// Timeout for opening a connection, including the TLS handshake.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Lifetime of an idle connection.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// Maximum characters of a foreign text that are quoted in an error.
const EXCERPT_MAX: usize = 300;

/// An HTTPS client for one configured service. Cheap to clone.
#[derive(Clone)]
pub struct HttpClient {
    client: reqwest::Client,
    guard: Guard,
    request_limit: Duration,
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpClient").field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// A complete response.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status code of the response.
    pub status: StatusCode,
    /// Header fields of the response.
    pub headers: HeaderMap,
    /// The complete body, at most 1 MiB.
    pub body: Bytes,
}

/// An HTTP request to a configured service.
#[derive(Debug)]
pub struct Request<'a> {
    /// HTTP method; set by [`Request::get`] and [`Request::post`].
    pub method: Method,
    /// The URL; it must pass the guard.
    pub url: &'a str,
    /// Header fields, in the order in which they are sent.
    pub headers: Vec<(&'static str, String)>,
    /// The body, if the request has one.
    pub body: Option<Vec<u8>>,
}

impl<'a> Request<'a> {
    /// Creates a GET request without header fields and body.
    #[must_use]
    pub fn get(url: &'a str) -> Self {
        Self { method: Method::GET, url, headers: Vec::new(), body: None }
    }

    /// Creates a POST request with these bytes as its body.
    #[must_use]
    pub fn post(url: &'a str, content_type: &str, body: Vec<u8>) -> Self {
        let headers = vec![("content-type", content_type.to_owned())];
        Self { method: Method::POST, url, headers, body: Some(body) }
    }

    /// Creates a POST request with a JSON body.
    #[must_use]
    pub fn post_json(url: &'a str, body: &serde_json::Value) -> Self {
        Self::post(url, "application/json", body.to_string().into_bytes())
    }

    /// Returns the request with one more header field.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl HttpClient {
    /// Creates a client from its configuration. It trusts the configured roots, or the system's roots if none are configured.
    ///
    /// # Errors
    /// [`HttpError::Misconfigured`] when the roots, the client certificate or its key cannot be used.
    pub fn new(config: &HttpConfig, resolver: &Resolver) -> Result<Self, HttpError> {
        Self::with_roots(config, resolver, roots(config)?)
    }

    /// Creates a client that trusts exactly these roots.
    ///
    /// # Errors
    /// See [`HttpClient::new`].
    pub fn with_roots(
        config: &HttpConfig,
        resolver: &Resolver,
        roots: RootCertStore,
    ) -> Result<Self, HttpError> {
        Self::with_tls(config, resolver, tls(config, roots)?)
    }

    /// Creates a client that accepts any server certificate. Use it only to fetch data that is then compared with a known hash.
    ///
    /// # Errors
    /// See [`HttpClient::new`].
    pub fn accepting_any_certificate(config: &HttpConfig, resolver: &Resolver) -> Result<Self, HttpError> {
        let mut tls = tls(config, RootCertStore::empty())?;
        tls.dangerous().set_certificate_verifier(Arc::new(AnyCertificate(aws_lc_rs::default_provider())));
        Self::with_tls(config, resolver, tls)
    }

    fn with_tls(
        config: &HttpConfig,
        resolver: &Resolver,
        tls: rustls::ClientConfig,
    ) -> Result<Self, HttpError> {
        let guard = config.guard;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(guard::resolver(resolver.clone(), guard))
            .redirect(redirect::Policy::custom(follow_same_origin))
            .referer(false)
            .no_proxy()
            .connect_timeout(CONNECT_LIMIT)
            .pool_idle_timeout(IDLE_LIMIT)
            .user_agent(concat!("bulla/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| {
                HttpError::misconfigured(format!("cannot create the HTTP client: {}", chain_of(&error)))
            })?;
        let request_limit = Duration::from_secs(config.request_seconds.clamp(1, 600).into());
        Ok(Self { client, guard, request_limit })
    }

    /// Sends a request and reads the complete response, whatever its status.
    ///
    /// # Errors
    /// [`HttpError::Unavailable`] or [`HttpError::TimedOut`]; [`HttpError::Misconfigured`] for a URL the guard refuses.
    pub async fn send(
        &self,
        request: Request<'_>,
        deadline: Instant,
        stage: &'static str,
    ) -> Result<Reply, HttpError> {
        let url = self.guard.url(request.url).map_err(|error| HttpError::misconfigured(error.to_string()))?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let until = deadline.min(Instant::now() + self.request_limit);
        let mut builder = self.client.request(request.method, url);
        for (name, value) in request.headers {
            let mut value = HeaderValue::from_str(&value).map_err(|_| {
                HttpError::misconfigured(format!("invalid character in the value of header {name}"))
            })?;
            value.set_sensitive(matches!(name, "authorization" | "x-vault-token"));
            builder = builder.header(name, value);
        }
        if let Some(body) = request.body {
            builder = builder.body(body);
        }
        let exchange = async {
            let failed = |error: reqwest::Error| {
                HttpError::unavailable(format!("{host}: {}", chain_of(&error.without_url())))
            };
            let mut response = builder.send().await.map_err(failed)?;
            let (status, headers) = (response.status(), response.headers().clone());
            let mut body = BytesMut::new();
            while let Some(chunk) = response.chunk().await.map_err(failed)? {
                if body.len() + chunk.len() > BODY_MAX {
                    return Err(HttpError::unavailable(format!(
                        "{host}: response larger than {BODY_MAX} bytes"
                    )));
                }
                body.extend_from_slice(&chunk);
            }
            Ok(Reply { status, headers, body: body.freeze() })
        };
        tokio::time::timeout_at(until.into(), exchange).await.map_err(|_| HttpError::TimedOut { stage })?
    }

    /// Returns the guard that decides which URLs and addresses may be connected to.
    #[must_use]
    pub fn guard(&self) -> Guard {
        self.guard
    }
}

impl Reply {
    /// Parses the body as JSON.
    ///
    /// # Errors
    /// [`HttpError::Unavailable`] when the body is not the expected JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, HttpError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| HttpError::unavailable(format!("the response cannot be parsed: {error}")))
    }

    /// Returns a header's value; `None` when the header is missing or not ASCII.
    #[must_use]
    pub fn header(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Parses `Retry-After` (RFC 9110 section 10.2.3) as a delay, at most one day. A date is converted relative to `now`.
    #[must_use]
    pub fn retry_after(&self, now: UnixTime) -> Option<Duration> {
        retry_after(&self.headers, now.0)
    }

    /// Returns the start of the body, suitable for an error message.
    #[must_use]
    pub fn excerpt(&self) -> String {
        excerpt(&String::from_utf8_lossy(&self.body))
    }
}

/// Returns the start of a foreign text, without control characters.
#[must_use]
pub fn excerpt(text: &str) -> String {
    let clean = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut start: String = clean.take(EXCERPT_MAX).collect();
    if text.trim().chars().count() > EXCERPT_MAX {
        start.push('…');
    }
    start
}

/// Follows redirects only within the configured origin, so that credentials are not sent to other servers.
fn follow_same_origin(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let origin =
        |url: &Url| (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default());
    let Some(first) = attempt.previous().first() else { return attempt.stop() };
    if origin(first) != origin(attempt.url()) {
        return attempt.error("a redirect to another host is not followed");
    }
    if attempt.previous().len() > REDIRECTS_MAX {
        return attempt.error("too many redirects");
    }
    attempt.follow()
}

/// Returns the configured roots, or the system's roots if none are configured.
fn roots(config: &HttpConfig) -> Result<RootCertStore, HttpError> {
    let Some(pem) = &config.roots else {
        let system = outbound::tls::system_roots().into_iter().map(CertificateDer::from);
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(system);
        return Ok(store);
    };
    let mut store = RootCertStore::empty();
    for (_, der) in x509::pem::certificates(pem.as_bytes()) {
        store
            .add(CertificateDer::from(der))
            .map_err(|error| HttpError::misconfigured(format!("http.roots: {error}")))?;
    }
    if store.is_empty() {
        return Err(HttpError::misconfigured("http.roots contains no PEM certificate"));
    }
    Ok(store)
}

fn tls(config: &HttpConfig, roots: RootCertStore) -> Result<rustls::ClientConfig, HttpError> {
    let bad = |error: rustls::Error| HttpError::misconfigured(format!("TLS cannot be set up: {error}"));
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(bad)?
        .with_root_certificates(roots);
    let mut tls = match (&config.client_certificate, &config.client_key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let chain: Vec<_> = x509::pem::certificates(certificate.as_bytes())
                .map(|(_, der)| CertificateDer::from(der))
                .collect();
            let key = keys::PrivateKey::from_pem(key.expose())
                .map_err(|error| HttpError::misconfigured(format!("http.client_key: {error}")))?;
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.to_pkcs8_der().to_vec()));
            builder.with_client_auth_cert(chain, key).map_err(bad)?
        }
        _ => {
            let together = "http.client_certificate and http.client_key must be set together";
            return Err(HttpError::misconfigured(together));
        }
    };
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

/// A verifier that accepts every certificate. The peer must still prove possession of its key.
#[derive(Debug)]
struct AnyCertificate(CryptoProvider);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Formats an error and its causes in one line.
fn chain_of(error: &dyn std::error::Error) -> String {
    excerpt(&telemetry::chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_replace_control_characters_and_are_truncated() {
        assert_eq!(excerpt(" a\r\nb\u{7}c "), "a  b c");
        assert_eq!(excerpt(&"x".repeat(400)).chars().count(), EXCERPT_MAX + 1);
    }
}
