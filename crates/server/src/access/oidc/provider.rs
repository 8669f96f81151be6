//! The issuer: its description, its keys, its token endpoint.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use flight::{Cache, Failed, Fresh};
use jsonwebtoken::jwk::Jwk;
use parking_lot::Mutex;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, RequestBuilder, Url};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::OidcOptions;
use crate::problem::Problem;

/// For one request to the issuer.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// For the connection under it.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Octets of an answer: descriptions and key sets are some kilobytes, ID tokens with many groups some dozen.
const ANSWER_MAX: usize = 1 << 20;
/// How long the description and the keys are believed.
const BELIEVED: Duration = Duration::from_secs(3_600);
/// How long a failure is remembered, so that an issuer that is away is not asked by every login.
const FAILURE_REMEMBERED: Duration = Duration::from_secs(5);
/// Between two looks for a key that is not known: anybody can send a token that names one.
const REFRESH_EVERY: Duration = Duration::from_secs(10);
/// Keys looked at in a key set.
const KEYS_MAX: usize = 64;
/// Seconds after which to try again when the issuer did not answer.
const RETRY_SECONDS: u64 = 10;

/// Why logging in cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    /// The issuer's URL.
    #[error("the OIDC issuer {0:?} is no https URL")]
    Issuer(String),
    /// The URL to come back to.
    #[error("the OIDC redirect URL {0:?} is no URL")]
    Redirect(String),
    /// The HTTP client: a root that cannot be read.
    #[error("the HTTP client for the OIDC issuer cannot be made: {0}")]
    Client(#[from] reqwest::Error),
}

/// The issuer's description of itself (OpenID Connect Discovery 1.0 section 3), what of it is needed.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Description {
    issuer: String,
    pub(super) authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    end_session_endpoint: Option<String>,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: String,
}

type Shared<T> = Cache<(), Arc<T>, Problem>;

/// Logs people in with one issuer. Cheap to clone; give it to [`StateBuilder::with`](crate::StateBuilder::with).
#[derive(Clone)]
pub struct Oidc(Arc<Inner>);

struct Inner {
    options: OidcOptions,
    client: Client,
    description: Shared<Description>,
    keys: Shared<Vec<Jwk>>,
    refreshed: Mutex<Option<Instant>>,
}

impl Oidc {
    /// Asks nobody yet.
    ///
    /// # Errors
    /// [`OidcError`].
    pub fn new(options: OidcOptions) -> Result<Self, OidcError> {
        let issuer = Url::parse(&options.issuer).map_err(|_| OidcError::Issuer(options.issuer.clone()))?;
        if !trustworthy(&issuer) {
            return Err(OidcError::Issuer(options.issuer));
        }
        if Url::parse(&options.redirect_url).is_err() {
            return Err(OidcError::Redirect(options.redirect_url));
        }
        let mut builder = Client::builder()
            .redirect(Policy::none())
            .timeout(REQUEST_MAX)
            .connect_timeout(CONNECT_MAX)
            .user_agent(concat!("bulla/", env!("CARGO_PKG_VERSION")));
        if !options.roots.is_empty() {
            let roots: Result<Vec<_>, _> =
                options.roots.iter().map(|root| Certificate::from_der(root)).collect();
            builder = builder.tls_certs_only(roots?);
        }
        Ok(Self(Arc::new(Inner {
            client: builder.build()?,
            options,
            description: Cache::with_entries(1),
            keys: Cache::with_entries(1),
            refreshed: Mutex::new(None),
        })))
    }

    /// As configured.
    #[must_use]
    pub fn options(&self) -> &OidcOptions {
        &self.0.options
    }

    pub(super) async fn description(&self) -> Result<Arc<Description>, Problem> {
        let inner = Arc::clone(&self.0);
        self.0
            .description
            .fetch(&(), move || async move { inner.describe().await.map(fresh).map_err(failed) })
            .await
    }

    async fn keys(&self) -> Result<Arc<Vec<Jwk>>, Problem> {
        let description = self.description().await?;
        let inner = Arc::clone(&self.0);
        let look = move || async move { inner.key_set(&description).await.map(fresh).map_err(failed) };
        self.0.keys.fetch(&(), look).await
    }

    /// The key that a token names; the key set is asked for again when it is not (yet) known.
    pub(super) async fn key(&self, kid: Option<&str>) -> Result<Jwk, Problem> {
        if let Some(key) = choose(&self.keys().await?, kid) {
            return Ok(key);
        }
        if self.may_refresh() {
            self.0.keys.invalidate(&());
            if let Some(key) = choose(&self.keys().await?, kid) {
                return Ok(key);
            }
        }
        Err(refused("the ID token is signed by a key that the issuer does not publish"))
    }

    /// Where a browser ends the issuer's own session (RP-initiated logout); `None` where the issuer has no such place, or
    /// does not answer.
    pub(crate) async fn end_session_url(&self) -> Option<String> {
        let description = self.description().await.ok()?;
        let parameters = [("client_id", &self.0.options.client_id)];
        let url = Url::parse_with_params(description.end_session_endpoint.as_deref()?, parameters).ok()?;
        trustworthy(&url).then(|| url.into())
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

    /// The ID token for a code (RFC 6749 section 4.1.3, RFC 7636 section 4.5).
    pub(super) async fn exchange(&self, code: &str, verifier: &str) -> Result<String, Problem> {
        let description = self.description().await?;
        let options = &self.0.options;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &options.redirect_url),
            ("code_verifier", verifier),
        ];
        let mut request = self.0.client.post(&description.token_endpoint);
        let secret = options.client_secret.as_ref().map(ExposeSecret::expose_secret);
        match secret {
            Some(secret) if description.takes_basic() => {
                request = request.basic_auth(form_encoded(&options.client_id), Some(form_encoded(secret)));
            }
            Some(secret) => {
                form.extend([("client_id", options.client_id.as_str()), ("client_secret", secret)]);
            }
            None => form.push(("client_id", &options.client_id)),
        }
        let tokens: Tokens = answer(request.form(&form)).await?;
        Ok(tokens.id_token)
    }
}

impl Inner {
    async fn describe(&self) -> Result<Arc<Description>, Problem> {
        let base = self.options.issuer.trim_end_matches('/');
        let description: Description =
            answer(self.client.get(format!("{base}/.well-known/openid-configuration"))).await?;
        // Otherwise one issuer could speak for another (Discovery section 4.3).
        if description.issuer != self.options.issuer {
            return Err(unusable(format_args!("its description is of the issuer {:?}", description.issuer)));
        }
        for url in [&description.authorization_endpoint, &description.token_endpoint, &description.jwks_uri] {
            if !Url::parse(url).is_ok_and(|url| trustworthy(&url)) {
                return Err(unusable(format_args!("{url:?} is no https URL")));
            }
        }
        Ok(Arc::new(description))
    }

    async fn key_set(&self, description: &Description) -> Result<Arc<Vec<Jwk>>, Problem> {
        let set: KeySet = answer(self.client.get(&description.jwks_uri)).await?;
        // A key of a kind that is not understood is somebody else's.
        let keys = set.keys.into_iter().take(KEYS_MAX).filter_map(|key| serde_json::from_value(key).ok());
        Ok(Arc::new(keys.collect()))
    }
}

impl Description {
    /// `client_secret_basic` is the default (Discovery section 3).
    fn takes_basic(&self) -> bool {
        let methods = &self.token_endpoint_auth_methods_supported;
        methods.is_empty() || methods.iter().any(|method| method == "client_secret_basic")
    }
}

/// A token without a key id is good only if there is one key.
fn choose(keys: &[Jwk], kid: Option<&str>) -> Option<Jwk> {
    match kid {
        Some(kid) => keys.iter().find(|key| key.common.key_id.as_deref() == Some(kid)).cloned(),
        None => match keys {
            [only] => Some(only.clone()),
            _ => None,
        },
    }
}

/// TLS, or this machine.
fn trustworthy(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let loopback = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    url.scheme() == "https" || (url.scheme() == "http" && loopback)
}

/// RFC 6749 section 2.3.1: both are form-encoded before they become a password.
fn form_encoded(text: &str) -> String {
    Url::parse_with_params("x:/", [("k", text)])
        .ok()
        .and_then(|url| url.query().and_then(|query| query.strip_prefix("k=")).map(str::to_owned))
        .unwrap_or_default()
}

async fn answer<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, Problem> {
    let mut response = request.send().await.map_err(|error| away(&error))?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| away(&error))? {
        if body.len() + part.len() > ANSWER_MAX {
            return Err(unusable("its answer is too large"));
        }
        body.extend_from_slice(&part);
    }
    if status.is_server_error() {
        return Err(away(&format!("status {status}")));
    }
    if !status.is_success() {
        tracing::warn!(%status, body = %String::from_utf8_lossy(&body[..body.len().min(512)]), "the OIDC issuer refused");
        return Err(refused("the issuer did not accept the login"));
    }
    serde_json::from_slice(&body)
        .map_err(|error| unusable(format_args!("its answer cannot be read: {error}")))
}

fn fresh<T>(value: T) -> Fresh<T> {
    Fresh { value, lifetime: BELIEVED }
}

fn failed(error: Problem) -> Failed<Problem> {
    Failed { error, lifetime: FAILURE_REMEMBERED }
}

fn away(error: &dyn fmt::Display) -> Problem {
    tracing::warn!(%error, "the OIDC issuer does not answer");
    Problem::unavailable("the issuer that people log in with does not answer", RETRY_SECONDS)
}

fn unusable(why: impl fmt::Display) -> Problem {
    tracing::error!(%why, "the OIDC issuer cannot be used");
    Problem::unavailable(
        "the issuer that people log in with gives answers that cannot be used",
        RETRY_SECONDS,
    )
}

/// A login that is not good.
pub(super) fn refused(why: impl fmt::Display) -> Problem {
    Problem::new(http::StatusCode::UNAUTHORIZED, "login-refused", "The login is not good")
        .detail(why)
        .hint("begin again at /api/v1/auth/login")
}

impl fmt::Debug for Oidc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Oidc").field(&self.0.options).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tls_or_this_machine_is_trusted() {
        for (url, good) in [
            ("https://a.example", true),
            ("http://127.0.0.1:8080/x", true),
            ("http://[::1]/x", true),
            ("http://a.example", false),
            ("http://localhost", false),
            ("ftp://127.0.0.1", false),
        ] {
            assert_eq!(trustworthy(&Url::parse(url).unwrap()), good, "{url}");
        }
    }

    #[test]
    fn secrets_are_form_encoded() {
        assert_eq!(form_encoded("a b:c%&é"), "a+b%3Ac%25%26%C3%A9");
    }
}
