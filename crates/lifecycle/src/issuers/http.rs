//! The HTTP client of issuers: one a configuration, guarded, bounded, patient no longer than the order.

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

use crate::issuers::{HttpConfig, IssuerError};

/// Octets of the longest answer read: chains of many alternates have some tens of thousands.
const BODY_MAX: usize = 1024 * 1024;
/// Redirects followed, all to the same host.
const REDIRECTS_MAX: usize = 3;
/// To open a connection, TLS included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// Letters of a foreign text that come into an error.
const EXCERPT_MAX: usize = 300;

/// A client for one issuer.
#[derive(Clone)]
pub(crate) struct Http {
    client: reqwest::Client,
    guard: Guard,
    request_limit: Duration,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// An answer, read whole.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What to send.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<Vec<u8>>,
}

impl<'a> Ask<'a> {
    pub(crate) fn get(url: &'a str) -> Self {
        Self { method: Method::GET, url, headers: Vec::new(), body: None }
    }

    pub(crate) fn post(url: &'a str, content_type: &str, body: Vec<u8>) -> Self {
        let headers = vec![("content-type", content_type.to_owned())];
        Self { method: Method::POST, url, headers, body: Some(body) }
    }

    pub(crate) fn post_json(url: &'a str, body: &serde_json::Value) -> Self {
        Self::post(url, "application/json", body.to_string().into_bytes())
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl Http {
    /// A client as configured.
    pub(crate) fn new(config: &HttpConfig, resolver: &Resolver) -> Result<Self, IssuerError> {
        Self::with_roots(config, resolver, roots(config)?)
    }

    /// A client that trusts exactly these roots.
    pub(crate) fn with_roots(
        config: &HttpConfig,
        resolver: &Resolver,
        roots: RootCertStore,
    ) -> Result<Self, IssuerError> {
        Self::over(config, resolver, tls(config, roots)?)
    }

    /// A client that believes any server certificate: only to fetch what is then held against a known hash.
    pub(crate) fn trusting_anyone(config: &HttpConfig, resolver: &Resolver) -> Result<Self, IssuerError> {
        let mut tls = tls(config, RootCertStore::empty())?;
        tls.dangerous().set_certificate_verifier(Arc::new(Anyone(aws_lc_rs::default_provider())));
        Self::over(config, resolver, tls)
    }

    fn over(
        config: &HttpConfig,
        resolver: &Resolver,
        tls: rustls::ClientConfig,
    ) -> Result<Self, IssuerError> {
        let guard = Guard { allow_link_local: config.allow_link_local };
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(guard::resolver(resolver.clone(), guard))
            .redirect(redirect::Policy::custom(same_origin))
            .referer(false)
            .no_proxy()
            .connect_timeout(CONNECT_LIMIT)
            .pool_idle_timeout(IDLE_LIMIT)
            .user_agent(concat!("bulla/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| IssuerError::misconfigured(format!("no HTTP client: {}", chain_of(&error))))?;
        let request_limit = Duration::from_secs(config.request_seconds.clamp(1, 600).into());
        Ok(Self { client, guard, request_limit })
    }

    /// Sends, and reads the whole answer, whatever its status.
    ///
    /// # Errors
    /// [`IssuerError::Unavailable`] or [`IssuerError::TimedOut`]; [`IssuerError::Misconfigured`] for a URL the guard
    /// refuses.
    pub(crate) async fn send(
        &self,
        ask: Ask<'_>,
        deadline: Instant,
        stage: &'static str,
    ) -> Result<Reply, IssuerError> {
        let url = self.guard.url(ask.url).map_err(|error| IssuerError::misconfigured(error.to_string()))?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let until = deadline.min(Instant::now() + self.request_limit);
        let mut request = self.client.request(ask.method, url);
        for (name, value) in ask.headers {
            let mut value = HeaderValue::from_str(&value).map_err(|_| {
                IssuerError::misconfigured(format!("the value of header {name} has odd letters"))
            })?;
            value.set_sensitive(matches!(name, "authorization" | "x-vault-token"));
            request = request.header(name, value);
        }
        if let Some(body) = ask.body {
            request = request.body(body);
        }
        let exchange = async {
            let failed = |error: reqwest::Error| {
                IssuerError::unavailable(format!("{host}: {}", chain_of(&error.without_url())))
            };
            let mut response = request.send().await.map_err(failed)?;
            let (status, headers) = (response.status(), response.headers().clone());
            let mut body = BytesMut::new();
            while let Some(chunk) = response.chunk().await.map_err(failed)? {
                if body.len() + chunk.len() > BODY_MAX {
                    return Err(IssuerError::unavailable(format!(
                        "{host}: an answer of over {BODY_MAX} octets"
                    )));
                }
                body.extend_from_slice(&chunk);
            }
            Ok(Reply { status, headers, body: body.freeze() })
        };
        tokio::time::timeout_at(until.into(), exchange).await.map_err(|_| IssuerError::TimedOut { stage })?
    }

    /// What may be connected to.
    pub(crate) fn guard(&self) -> Guard {
        self.guard
    }
}

impl Reply {
    /// The body as JSON.
    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, IssuerError> {
        serde_json::from_slice(&self.body).map_err(|error| {
            IssuerError::unavailable(format!("an answer that cannot be understood: {error}"))
        })
    }

    /// A header's text.
    pub(crate) fn header(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Retry-After (RFC 9110 section 10.2.3), a date held against `now`; at most a day.
    pub(crate) fn retry_after(&self, now: UnixTime) -> Option<Duration> {
        retry_after(&self.headers, now.0)
    }

    /// The start of the body, fit to stand in an error.
    pub(crate) fn excerpt(&self) -> String {
        excerpt(&String::from_utf8_lossy(&self.body))
    }
}

/// The start of a foreign text without control characters.
pub(crate) fn excerpt(text: &str) -> String {
    let clean = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut start: String = clean.take(EXCERPT_MAX).collect();
    if text.trim().chars().count() > EXCERPT_MAX {
        start.push('…');
    }
    start
}

/// Only within the origin the operator configured: elsewhere our credentials have no business.
fn same_origin(attempt: redirect::Attempt<'_>) -> redirect::Action {
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

/// The roots configured, or else the system's.
fn roots(config: &HttpConfig) -> Result<RootCertStore, IssuerError> {
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
            .map_err(|error| IssuerError::misconfigured(format!("http.roots: {error}")))?;
    }
    if store.is_empty() {
        return Err(IssuerError::misconfigured("http.roots holds no certificate in PEM"));
    }
    Ok(store)
}

fn tls(config: &HttpConfig, roots: RootCertStore) -> Result<rustls::ClientConfig, IssuerError> {
    let bad = |error: rustls::Error| IssuerError::misconfigured(format!("TLS cannot be set up: {error}"));
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
                .map_err(|error| IssuerError::misconfigured(format!("http.client_key: {error}")))?;
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.to_pkcs8_der().to_vec()));
            builder.with_client_auth_cert(chain, key).map_err(bad)?
        }
        _ => {
            let together = "http.client_certificate and http.client_key go together";
            return Err(IssuerError::misconfigured(together));
        }
    };
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

/// Takes every certificate; the peer must still hold its key.
#[derive(Debug)]
struct Anyone(CryptoProvider);

impl ServerCertVerifier for Anyone {
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

/// An error and its causes in one line.
fn chain_of(error: &dyn std::error::Error) -> String {
    excerpt(&telemetry::chain(error))
}

/// The certificates of a PEM text, in its order; at least one.
pub(crate) fn chain_from(body: &[u8]) -> Result<Vec<Vec<u8>>, IssuerError> {
    let chain: Vec<Vec<u8>> = x509::pem::certificates(body).map(|(_, der)| der).collect();
    if chain.is_empty() {
        let start = excerpt(&String::from_utf8_lossy(body));
        return Err(IssuerError::unavailable(format!("an answer without a certificate in PEM: {start}")));
    }
    Ok(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_texts_are_tamed() {
        assert_eq!(excerpt(" a\r\nb\u{7}c "), "a  b c");
        assert_eq!(excerpt(&"x".repeat(400)).chars().count(), EXCERPT_MAX + 1);
    }
}
