//! An issuer of tokens: its metadata and its keys (OpenID Connect Discovery 1.0, RFC 7517), and verification of its tokens (RFC
//! 7519).

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flight::{Cache, Failed, Fresh};
use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use parking_lot::Mutex;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, RequestBuilder, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::problem::Problem;

/// Timeout of a request to the issuer.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Timeout of a connection to the issuer.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Maximum bytes of a response. Metadata and key sets have a few kilobytes, ID tokens with many groups a few dozen.
const ANSWER_MAX: usize = 1 << 20;
/// Lifetime of the cached metadata and keys.
const CACHE_LIFETIME: Duration = Duration::from_secs(3_600);
/// Time for which a failure is cached, so that not every login sends a request to an unavailable issuer.
const FAILURE_CACHE_LIFETIME: Duration = Duration::from_secs(5);
/// Minimum interval between refreshes of the key set because of an unknown key. Anyone can send a token that names an unknown key.
const REFRESH_EVERY: Duration = Duration::from_secs(10);
/// Maximum keys that are read from a key set.
const KEYS_MAX: usize = 64;
/// `Retry-After` in seconds when the issuer did not respond.
const RETRY_SECONDS: u64 = 10;

/// Accepted signature algorithms: only algorithms with public keys. With a shared secret, or without a signature, anyone could
/// forge tokens.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Reason why the issuer's configuration is invalid.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// The issuer's URL is invalid.
    #[error("the issuer {0:?} is not an https URL")]
    Url(String),
    /// The HTTP client could not be created, for example because a root cannot be parsed.
    #[error("the HTTP client for the issuer cannot be created: {0}")]
    Client(#[from] reqwest::Error),
}

/// The required part of the issuer's metadata (OpenID Connect Discovery 1.0 section 3).
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Description {
    pub(crate) issuer: String,
    /// Required only for logins of users. Kubernetes and GitHub only sign tokens and have none.
    authorization_endpoint: Option<String>,
    token_endpoint: Option<String>,
    jwks_uri: String,
    pub(crate) end_session_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    pub(crate) authorization_response_iss_parameter_supported: bool,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

type Shared<T> = Cache<(), Arc<T>, Problem>;

/// A token issuer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Issuer(Arc<IssuerParts>);

struct IssuerParts {
    /// URL of the metadata, without the well-known path.
    base: String,
    /// The issuer's name, which its metadata must contain. `None` accepts any name, because the URL already identifies the issuer.
    name: Option<String>,
    client: Client,
    description: Shared<Description>,
    keys: Shared<Vec<Jwk>>,
    refreshed: Mutex<Option<Instant>>,
}

impl Issuer {
    /// Creates an issuer without sending a request. `named` tells whether its metadata must contain this URL as its name
    /// (Discovery section 4.3).
    pub(crate) fn new(url: &str, named: bool, roots: &[Vec<u8>]) -> Result<Self, IssuerError> {
        if !Url::parse(url).is_ok_and(|url| is_secure_url(&url)) {
            return Err(IssuerError::Url(url.to_owned()));
        }
        let mut builder = Client::builder()
            .redirect(Policy::none())
            .timeout(REQUEST_MAX)
            .connect_timeout(CONNECT_MAX)
            .user_agent(concat!("bulla/", env!("CARGO_PKG_VERSION")));
        if !roots.is_empty() {
            let roots: Result<Vec<_>, _> = roots.iter().map(|root| Certificate::from_der(root)).collect();
            builder = builder.tls_certs_only(roots?);
        }
        Ok(Self(Arc::new(IssuerParts {
            base: url.trim_end_matches('/').to_owned(),
            name: named.then(|| url.to_owned()),
            client: builder.build()?,
            description: Cache::with_entries_max(1),
            keys: Cache::with_entries_max(1),
            refreshed: Mutex::new(None),
        })))
    }

    /// Returns the HTTP client for requests to the issuer.
    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// Returns the issuer's metadata.
    pub(crate) async fn description(&self) -> Result<Arc<Description>, Problem> {
        let inner = Arc::clone(&self.0);
        self.0
            .description
            .fetch(&(), move || async move { inner.fetch_description().await.map(fresh).map_err(failed) })
            .await
    }

    async fn keys(&self) -> Result<Arc<Vec<Jwk>>, Problem> {
        let description = self.description().await?;
        let inner = Arc::clone(&self.0);
        let lookup = move || async move { inner.key_set(&description).await.map(fresh).map_err(failed) };
        self.0.keys.fetch(&(), lookup).await
    }

    /// Returns the key that a token names. Fetches the key set again if the key is unknown.
    async fn key(&self, kid: Option<&str>) -> Result<Jwk, Problem> {
        if let Some(key) = choose(&self.keys().await?, kid) {
            return Ok(key);
        }
        if self.may_refresh() {
            self.0.keys.invalidate(&());
            if let Some(key) = choose(&self.keys().await?, kid) {
                return Ok(key);
            }
        }
        Err(refused("the token is signed by a key that the issuer does not publish"))
    }

    fn may_refresh(&self) -> bool {
        let now = Instant::now();
        let mut refreshed = self.0.refreshed.lock();
        let may = refreshed.is_none_or(|last| now.duration_since(last) >= REFRESH_EVERY);
        if may {
            *refreshed = Some(now);
        }
        may
    }

    /// Verifies the signature of a token and returns its claims. Checks none of the claims.
    ///
    /// # Errors
    /// 401 for an invalid token; 503 when the issuer does not respond.
    pub(crate) async fn verified_claims<T: DeserializeOwned>(&self, token: &str) -> Result<T, Problem> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| refused("the token cannot be parsed"))?;
        reject_critical(token)?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(refused(format_args!(
                "the token's signature algorithm {:?} is not supported",
                header.alg
            )));
        }
        let jwk = self.key(header.kid.as_deref()).await?;
        let named = jwk.common.key_algorithm.map(|algorithm| algorithm.to_string());
        let for_signing =
            jwk.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
        if !for_signing || named.is_some_and(|named| named != format!("{:?}", header.alg)) {
            return Err(refused("the issuer's key does not allow the token's signature algorithm"));
        }
        let key = DecodingKey::from_jwk(&jwk).map_err(|_| refused("the issuer's key cannot be used"))?;
        let mut validation = Validation::new(header.alg);
        // The caller checks times and audience, with its own clock and rules.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        let decoded = jsonwebtoken::decode::<T>(token, &key, &validation);
        decoded
            .map(|decoded| decoded.claims)
            .map_err(|error| refused(format_args!("the token is not valid: {error}")))
    }
}

impl IssuerParts {
    async fn fetch_description(&self) -> Result<Arc<Description>, Problem> {
        let metadata_url = format!("{}/.well-known/openid-configuration", self.base);
        let description: Description = fetch_json(self.client.get(metadata_url)).await?;
        // Otherwise one issuer could impersonate another (Discovery section 4.3).
        if self.name.as_ref().is_some_and(|name| *name != description.issuer) {
            return Err(invalid_metadata(format_args!(
                "the metadata names another issuer: {:?}",
                description.issuer
            )));
        }
        checked_url(&description.jwks_uri)?;
        Ok(Arc::new(description))
    }

    async fn key_set(&self, description: &Description) -> Result<Arc<Vec<Jwk>>, Problem> {
        let set: KeySet = fetch_json(self.client.get(&description.jwks_uri)).await?;
        // Keys of an unknown type are ignored, because they are for other clients.
        let keys = set.keys.into_iter().take(KEYS_MAX).filter_map(|key| serde_json::from_value(key).ok());
        Ok(Arc::new(keys.collect()))
    }
}

/// Returns the URL if it uses https, or http with a loopback address. Rejects any other URL.
fn checked_url(url: &str) -> Result<&str, Problem> {
    if Url::parse(url).is_ok_and(|url| is_secure_url(&url)) {
        return Ok(url);
    }
    Err(invalid_metadata(format_args!("{url:?} is not an https URL")))
}

impl Description {
    /// Returns the URL of the login page.
    ///
    /// # Errors
    /// 503 if the issuer's metadata has no authorization endpoint, or an unusable one.
    pub(crate) fn authorization_endpoint(&self) -> Result<&str, Problem> {
        let url = self.authorization_endpoint.as_deref();
        checked_url(url.ok_or_else(|| invalid_metadata("the metadata has no authorization_endpoint"))?)
    }

    /// Returns the URL that exchanges an authorization code for tokens.
    ///
    /// # Errors
    /// 503 if the issuer's metadata has no token endpoint, or an unusable one.
    pub(crate) fn token_endpoint(&self) -> Result<&str, Problem> {
        let url = self.token_endpoint.as_deref();
        checked_url(url.ok_or_else(|| invalid_metadata("the metadata has no token_endpoint"))?)
    }

    /// Returns whether the issuer supports `client_secret_basic`, which is the default (Discovery section 3).
    pub(crate) fn supports_basic_auth(&self) -> bool {
        let methods = &self.token_endpoint_auth_methods_supported;
        methods.is_empty() || methods.iter().any(|method| method == "client_secret_basic")
    }
}

/// Rejects a token with critical header parameters. A recipient must reject parameters that it does not know (RFC 7515 section
/// 4.1.11), and this server knows none.
fn reject_critical(token: &str) -> Result<(), Problem> {
    let header = token.split('.').next().unwrap_or_default();
    let header = URL_SAFE_NO_PAD.decode(header).ok();
    let header: Option<serde_json::Value> = header.and_then(|json| serde_json::from_slice(&json).ok());
    match header {
        Some(header) if header.get("crit").is_none() => Ok(()),
        Some(_) => Err(refused("the token has critical header parameters (crit), which are not supported")),
        None => Err(refused("the token cannot be parsed")),
    }
}

/// Selects the key of a token. A token without a key ID is valid only if there is exactly one key.
fn choose(keys: &[Jwk], kid: Option<&str>) -> Option<Jwk> {
    match kid {
        Some(kid) => keys.iter().find(|key| key.common.key_id.as_deref() == Some(kid)).cloned(),
        None => match keys {
            [only] => Some(only.clone()),
            _ => None,
        },
    }
}

/// Returns whether a URL uses https, or http with a loopback address.
pub(crate) fn is_secure_url(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "https" || (url.scheme() == "http" && loopback)
}

/// Sends a request and parses the response, bounded in size.
pub(crate) async fn fetch_json<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, Problem> {
    let mut response = request.send().await.map_err(|error| issuer_unavailable(&error))?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| issuer_unavailable(&error))? {
        if body.len() + part.len() > ANSWER_MAX {
            return Err(invalid_metadata("the response is too large"));
        }
        body.extend_from_slice(&part);
    }
    if status.is_server_error() {
        return Err(issuer_unavailable(&format!("status {status}")));
    }
    if !status.is_success() {
        tracing::warn!(%status, body = %String::from_utf8_lossy(&body[..body.len().min(512)]), "the issuer rejected the request");
        return Err(refused("the issuer rejected the login"));
    }
    serde_json::from_slice(&body)
        .map_err(|error| invalid_metadata(format_args!("the response cannot be parsed: {error}")))
}

fn fresh<T>(value: T) -> Fresh<T> {
    Fresh { value, lifetime: CACHE_LIFETIME }
}

fn failed(error: Problem) -> Failed<Problem> {
    Failed { error, lifetime: FAILURE_CACHE_LIFETIME }
}

fn issuer_unavailable(error: &dyn fmt::Display) -> Problem {
    tracing::warn!(%error, "the OIDC issuer does not answer");
    Problem::unavailable("the OIDC issuer does not answer", RETRY_SECONDS)
}

fn invalid_metadata(why: impl fmt::Display) -> Problem {
    tracing::error!(%why, "the OIDC issuer returned an invalid response");
    Problem::unavailable("the OIDC issuer returned an invalid response", RETRY_SECONDS)
}

/// Returns the error for an invalid login.
pub(crate) fn refused(why: impl fmt::Display) -> Problem {
    Problem::new(http::StatusCode::UNAUTHORIZED, "login-refused", "Login rejected")
        .detail(why)
        .hint("start again at /api/v1/auth/login")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_with_critical_header_parameters_are_rejected() {
        let token = |header: &str| format!("{}.e30.AA", URL_SAFE_NO_PAD.encode(header));
        assert!(reject_critical(&token(r#"{"alg":"ES256","kid":"a"}"#)).is_ok());
        for bad in [r#"{"alg":"ES256","crit":["b64"],"b64":false}"#, r#"{"crit":null}"#, "x"] {
            assert!(reject_critical(&token(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn issuer_urls_must_be_https_or_loopback() {
        for (url, good) in [
            ("https://a.example", true),
            ("http://127.0.0.1:8080/x", true),
            ("http://[::1]/x", true),
            ("http://a.example", false),
            ("http://localhost", false),
            ("ftp://127.0.0.1", false),
        ] {
            assert_eq!(is_secure_url(&Url::parse(url).unwrap()), good, "{url}");
        }
    }
}
