//! Authentication of proxy clients: users with passwords, tokens, and client certificates.
//!
//! Password hashes are deliberately slow. They are computed on separate threads, a few at a time, and once for concurrent requests
//! with the same password. Verified passwords are cached under a keyed digest, so that later requests need no hash.

mod attempts;
mod credentials;
mod denied;
mod jwt;
mod keyed_digest;
mod passwords;
mod tls;

pub use credentials::Token;
pub(super) use denied::Denied;
pub use jwt::{IssuerKeys, IssuerOptions};
pub use passwords::{BadUsers, Users};
pub(super) use tls::AcceptedClient;
pub use tls::{OwnTls, ProxyTlsError};

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flight::{Failed, Fresh};
use http_relay::client::{Client, Credential};
use http_relay::clock::now;
use http_relay::page::{self, Body};
use hyper::header::{
    AsHeaderName, HeaderMap, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, RETRY_AFTER,
};
use hyper::{Response, StatusCode};
use inbound::Slots;
use outbound::resolve::Resolver;
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use self::credentials::{Credentials, Proven};
use self::jwt::{BadToken, Issuers, is_jwt};
use self::keyed_digest::{DIGEST, under};
use crate::revocation::RevocationMetrics;
use crate::start_error::StartError;
use attempts::FailedAttemptLimit;
use passwords::CREDENTIAL_BYTES_MAX;
use tls::ProxyTlsAcceptor;

/// Time for which verified passwords are cached.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Timeout for waiting in the queue of password checks.
const WAIT: Duration = Duration::from_secs(10);
/// Maximum characters of a user name that comes from a token.
const USER_CHARS_MAX: usize = 255;

/// Users of the proxy. If there are none, all clients of permitted networks may use it.
#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    /// Users with passwords. Default: none.
    pub users: Users,
    /// Access tokens, each with the name of its owner. Default: none.
    pub tokens: Vec<Token>,
    /// Issuers of accepted JSON Web Tokens.
    pub issuers: Vec<IssuerOptions>,
    /// TLS to the proxy, which protects passwords. With client roots, clients may authenticate by certificates.
    pub tls: Option<OwnTls>,
    /// User of all clients, if the listener is in a network namespace that belongs to this user. Default: `None`.
    pub confined_user: Option<Arc<str>>,
}

/// Authentication of clients, and checks of their access.
pub(super) struct Access {
    credentials: RwLock<Arc<Credentials>>,
    /// Whether authentication was required at startup. It then stays required, even if a reload removes all users.
    always_requires_authentication: bool,
    issuers: Issuers,
    tls_acceptor: Option<ProxyTlsAcceptor>,
    confined_user: Option<Arc<str>>,
    key: hmac::Key,
    attempts: FailedAttemptLimit,
    /// Permits for hashing passwords.
    workers: Arc<Semaphore>,
    waiting: Slots,
}

impl Access {
    pub(super) fn new(
        options: &AccessOptions,
        resolver: &Resolver,
        metrics: &RevocationMetrics,
    ) -> Result<Self, StartError> {
        let mut secret = Zeroizing::new([0; DIGEST]);
        rand::fill(&mut *secret).map_err(|_| StartError::NoRandomness)?;
        let or_else = !options.users.is_empty() || !options.tokens.is_empty() || !options.issuers.is_empty();
        let tls_acceptor = options
            .tls
            .as_ref()
            .map(|own| ProxyTlsAcceptor::new(own, or_else, metrics.clone()))
            .transpose()?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &*secret);
        let credentials = Credentials::new(options.users.clone(), &options.tokens, &key);
        let certificates = options.tls.as_ref().is_some_and(|own| !own.client_roots.is_empty());
        // At most half of the processors hash passwords; the others serve authenticated clients.
        let workers = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
        Ok(Self {
            always_requires_authentication: certificates
                || !options.issuers.is_empty()
                || !credentials.is_empty(),
            issuers: Issuers::new(&options.issuers, resolver).map_err(StartError::Issuers)?,
            credentials: RwLock::new(Arc::new(credentials)),
            tls_acceptor,
            confined_user: options.confined_user.clone(),
            key,
            attempts: FailedAttemptLimit::new(),
            workers: Arc::new(Semaphore::new(workers)),
            waiting: attempts::waiting(),
        })
    }

    /// Returns the client of a new connection from `address`.
    pub(super) fn client(&self, address: SocketAddr) -> Client {
        match &self.confined_user {
            Some(user) => Client::confined(address, Arc::clone(user)),
            None => Client::at(address),
        }
    }

    fn now(&self) -> Arc<Credentials> {
        Arc::clone(&self.credentials.read())
    }

    /// Replaces users and tokens. Removed or changed credentials are revoked, which ends the connections of their clients.
    pub(super) fn change(&self, users: Users, tokens: &[Token]) {
        let mut new = Credentials::new(users, tokens, &self.key);
        let mut credentials = self.credentials.write();
        new.replace(&credentials);
        *credentials = Arc::new(new);
    }

    /// Returns whether clients must authenticate.
    pub(super) fn requires_authentication(&self) -> bool {
        self.always_requires_authentication || !self.credentials.read().is_empty()
    }

    /// Returns whether Basic authentication is possible: with passwords of users, or with a token as password and its name as the
    /// user.
    pub(super) fn has_passwords(&self) -> bool {
        !self.credentials.read().is_empty()
    }

    /// Returns the TLS acceptor of the proxy itself; `None` without [`AccessOptions::tls`].
    pub(super) fn tls_acceptor(&self) -> Option<&ProxyTlsAcceptor> {
        self.tls_acceptor.as_ref()
    }

    /// Authenticates the client by `Proxy-Authorization`. Returns an anonymous client if authentication is not required.
    pub(super) async fn of_request(&self, headers: &HeaderMap, client: &Client) -> Result<Client, Denied> {
        if !self.requires_authentication() || client.user.is_some() {
            return Ok(client.clone());
        }
        let value = only(headers, PROXY_AUTHORIZATION)?;
        let (scheme, rest) = value.split_once(' ').ok_or(Denied::Wrong)?;
        let rest = rest.trim_matches(' ');
        let proven = if scheme.eq_ignore_ascii_case("bearer") {
            if self.accepts_jwt(rest.as_bytes()) {
                return self.jwt(rest.as_bytes(), client).await;
            }
            self.token(rest, client.ip())?
        } else if scheme.eq_ignore_ascii_case("basic") {
            let plain = Zeroizing::new(STANDARD.decode(rest).map_err(|_| Denied::Wrong)?);
            let colon = plain.iter().position(|byte| *byte == b':').ok_or(Denied::Wrong)?;
            return self.authenticate_password(&plain[..colon], &plain[colon + 1..], client).await;
        } else {
            return Err(Denied::Wrong);
        };
        Ok(proven.client(client))
    }

    /// Authenticates a client by user name and password. The password may also be a token, or a JSON Web Token with any user name.
    pub(super) async fn authenticate_password(
        &self,
        name: &[u8],
        password: &[u8],
        client: &Client,
    ) -> Result<Client, Denied> {
        match self.accepts_jwt(password) {
            true => self.jwt(password, client).await,
            false => Ok(self.password(name, password, client.ip()).await?.client(client)),
        }
    }

    fn accepts_jwt(&self, text: &[u8]) -> bool {
        !self.issuers.is_empty() && is_jwt(text)
    }

    /// Authenticates `client` by a JSON Web Token.
    async fn jwt(&self, token: &[u8], client: &Client) -> Result<Client, Denied> {
        let address = client.ip();
        if !self.attempts.is_attempt_permitted(address) {
            return Err(Denied::TooOften);
        }
        let token = std::str::from_utf8(token).map_err(|_| Denied::Wrong)?;
        let claims = self.issuers.verify(token, now().0).await.map_err(|error| {
            tracing::info!(%client, %error, "rejected a JSON Web Token");
            match error {
                BadToken::NoKeys(..) => Denied::NoKeys,
                _ if self.attempts.begin(address) => Denied::Wrong,
                _ => Denied::TooOften,
            }
        })?;
        let subject = claims.claims.get("sub").and_then(Value::as_str).unwrap_or_default();
        let user: String = format!("{}:{subject}", claims.issuer).chars().take(USER_CHARS_MAX).collect();
        Ok(client.authenticated_as(user.into(), Credential::Jwt(Arc::new(claims))))
    }

    fn token(&self, token: &str, client: IpAddr) -> Result<Proven, Denied> {
        if let Some(proven) = self.now().token(token.as_bytes(), &self.key) {
            return Ok(proven.clone());
        }
        Err(if self.attempts.begin(client) { Denied::Wrong } else { Denied::TooOften })
    }

    /// Authenticates a user by name and password.
    pub(super) async fn password(
        &self,
        name: &[u8],
        password: &[u8],
        client: IpAddr,
    ) -> Result<Proven, Denied> {
        if name.len() > CREDENTIAL_BYTES_MAX || password.len() > CREDENTIAL_BYTES_MAX {
            return Err(Denied::Wrong);
        }
        let name = std::str::from_utf8(name).map_err(|_| Denied::Wrong)?;
        let credentials = self.now();
        // Clients that support only passwords send a token as password, with its name as the user.
        if let Some(proven) = credentials.token(password, &self.key).filter(|proven| *proven.user == *name) {
            return Ok(proven.clone());
        }
        if credentials.users.is_empty() {
            return Err(if self.attempts.begin(client) { Denied::Wrong } else { Denied::TooOften });
        }
        let key = under(&self.key, &[name.as_bytes(), &[0], password]);
        if let Some(cached) = credentials.remembered.get(&key) {
            return cached.outcome.clone();
        }
        // For an unknown name, the hash of another user is checked. A name always selects the same user, and clients cannot predict
        // which.
        let stand_in = under(&self.key, &[b"stand-in", &[0], name.as_bytes()]);
        let (user, hash) = credentials.users.hash_of(name, &stand_in).ok_or(Denied::Wrong)?;
        let user = user.and_then(|user| credentials.user(&user).cloned());
        let password = Zeroizing::new(password.to_vec());
        let (attempts, workers, waiting) =
            (self.attempts.clone(), Arc::clone(&self.workers), self.waiting.clone());
        let check = move || async move {
            // Failures are not cached: the next attempt counts again.
            let denied = |error| Failed { error, lifetime: Duration::ZERO };
            // A client over its limit must not occupy a slot.
            if !attempts.is_attempt_permitted(client) {
                return Err(denied(Denied::TooOften));
            }
            let _slot = waiting.take(Some(client)).ok_or_else(|| denied(Denied::Busy))?;
            let worker = tokio::time::timeout(WAIT, workers.acquire_owned()).await;
            let Ok(Ok(worker)) = worker else { return Err(denied(Denied::Busy)) };
            if !attempts.begin(client) {
                return Err(denied(Denied::TooOften));
            }
            let checked = tokio::task::spawn_blocking(move || {
                let _worker = worker;
                // Checked also for an unknown name, so that both cases take the same time.
                let fits = hash.fits(&password);
                let user = user.filter(|_| fits);
                // Recorded in this task, so that a success counts even if the client has disconnected.
                if user.is_some() {
                    attempts.succeeded(client);
                }
                user
            });
            match checked.await {
                Ok(Some(user)) => Ok(Fresh { value: user, lifetime: REMEMBERED }),
                _ => Err(denied(Denied::Wrong)),
            }
        };
        credentials.remembered.fetch(&key, check).await
    }

    /// Returns the response to a client that failed to authenticate (RFC 9110 section 11.7).
    pub(super) fn refusal(&self, denied: Denied) -> Response<Body> {
        let status = match denied {
            // No credential in a header field could authenticate the client: the proxy accepts neither passwords nor tokens.
            _ if !self.has_passwords() && self.issuers.is_empty() => StatusCode::FORBIDDEN,
            Denied::Missing | Denied::Wrong => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            Denied::TooOften => StatusCode::TOO_MANY_REQUESTS,
            Denied::Busy | Denied::NoKeys => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut response = page::problem(status, "http_request_denied", &denied.to_string());
        if matches!(denied, Denied::TooOften | Denied::Busy | Denied::NoKeys) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
            return response;
        }
        let schemes = [
            (
                self.has_passwords() || !self.issuers.is_empty(),
                r#"Basic realm="bulla proxy", charset="UTF-8""#,
            ),
            (self.now().has_tokens() || !self.issuers.is_empty(), r#"Bearer realm="bulla proxy""#),
        ];
        for (_, scheme) in schemes.into_iter().filter(|(offered, _)| *offered) {
            response.headers_mut().append(PROXY_AUTHENTICATE, HeaderValue::from_static(scheme));
        }
        response
    }
}

impl Proven {
    /// Returns `client`, authenticated by the password or token.
    pub(crate) fn client(self, client: &Client) -> Client {
        client.authenticated_as(self.user, Credential::Secret(self.ended))
    }
}

/// Returns the single value of a header field.
fn only(headers: &HeaderMap, name: impl AsHeaderName) -> Result<&str, Denied> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(Denied::Missing)?;
    if values.next().is_some() {
        return Err(Denied::Wrong);
    }
    value.to_str().map_err(|_| Denied::Wrong)
}
