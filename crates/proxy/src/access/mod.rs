//! Who may use the proxy: users with passwords, tokens, certificates over TLS.
//!
//! A password's hash is dear on purpose, so it is made off the threads that serve, by few at once, once for all who show the same
//! at a time, and what fits is remembered under a keyed digest: requests of a client that is known cost no hash.

mod attempts;
mod keyed_digest;
mod passwords;
mod tls;

pub use passwords::{BadUsers, Users};
pub use tls::{BadOwnTls, OwnTls};

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::{digest, hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flight::{Cache, Failed, Fresh};
use http_relay::client::Client;
use http_relay::page::{self, Body};
use hyper::header::{
    AsHeaderName, HeaderMap, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, RETRY_AFTER,
};
use hyper::{Response, StatusCode};
use inbound::Slots;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use self::keyed_digest::{DIGEST, Digest, under};
use crate::revocation::RevocationMetrics;
use crate::start_error::StartError;
use attempts::Attempts;
use passwords::CREDENTIAL_OCTETS_MAX;
use tls::OwnTlsAcceptor;

/// Passwords that fit, which are remembered.
const REMEMBERED_MAX: u64 = 65_536;
/// For how long.
const REMEMBERED: Duration = Duration::from_secs(600);
/// How long passwords wait to be looked at.
const WAIT: Duration = Duration::from_secs(10);
/// A token of which only the digest is known.
#[derive(Clone, Debug)]
pub struct Token {
    /// The user's name.
    pub name: String,
    /// The SHA-256 fingerprint.
    pub digest: [u8; DIGEST],
}

/// Users of the proxy; all clients of permitted networks if there are none.
#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    /// By password.
    pub users: Users,
    /// By token.
    pub tokens: Vec<Token>,
    /// By certificate, where its roots are named; and how passwords are not seen on their way.
    pub tls: Option<OwnTls>,
    /// The user that all clients are, where the listener is in a network namespace of theirs alone. Default: `None`.
    pub confined_user: Option<Arc<str>>,
}

/// Why a client is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Denied {
    #[error("this proxy requires authentication")]
    Missing,
    #[error("the user or the password, or the token, is wrong")]
    Wrong,
    #[error("too many tries have failed from there")]
    TooOften,
    #[error("too many passwords wait to be looked at")]
    Busy,
}

impl Denied {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Wrong => "wrong",
            Self::TooOften => "too-often",
            Self::Busy => "busy",
        }
    }
}

/// Authenticates clients and checks their access.
pub(super) struct Access {
    users: Arc<Users>,
    /// By digests under `key`: how long a look takes says nothing of what stands there.
    tokens: HashMap<Digest, Arc<str>>,
    door: Option<OwnTlsAcceptor>,
    confined_user: Option<Arc<str>>,
    certificates: bool,
    key: hmac::Key,
    remembered: Cache<Digest, Arc<str>, Denied>,
    attempts: Attempts,
    /// Permits for hashing passwords.
    workers: Arc<Semaphore>,
    waiting: Slots,
}

impl Access {
    pub(super) fn new(options: &AccessOptions, metrics: &RevocationMetrics) -> Result<Self, StartError> {
        let mut secret = Zeroizing::new([0; DIGEST]);
        rand::fill(&mut *secret).map_err(|_| StartError::NoRandomness)?;
        let or_else = !options.users.is_empty() || !options.tokens.is_empty();
        let door =
            options.tls.as_ref().map(|own| OwnTlsAcceptor::new(own, or_else, metrics.clone())).transpose()?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &*secret);
        let token = |token: &Token| (under(&key, &[&token.digest]), Arc::from(token.name.as_str()));
        let tokens = options.tokens.iter().map(token).collect();
        // Half of the processors go on serving who is let in.
        let workers = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2);
        Ok(Self {
            users: Arc::new(options.users.clone()),
            tokens,
            door,
            confined_user: options.confined_user.clone(),
            certificates: options.tls.as_ref().is_some_and(|own| !own.client_roots.is_empty()),
            key,
            remembered: Cache::with_entries(REMEMBERED_MAX),
            attempts: Attempts::new(),
            workers: Arc::new(Semaphore::new(workers)),
            waiting: attempts::waiting(),
        })
    }

    /// The client of a new connection from `address`.
    pub(super) fn client(&self, address: SocketAddr) -> Client {
        match &self.confined_user {
            Some(user) => Client::confined(address, Arc::clone(user)),
            None => Client::at(address),
        }
    }

    /// Whether clients must authenticate.
    pub(super) fn asks(&self) -> bool {
        self.certificates || !self.users.is_empty() || !self.tokens.is_empty()
    }

    /// Whether passwords are of use: those of users, and tokens with the token's name as the user.
    pub(super) fn has_passwords(&self) -> bool {
        !self.users.is_empty() || !self.tokens.is_empty()
    }

    /// TLS of its own.
    pub(super) fn door(&self) -> Option<&OwnTlsAcceptor> {
        self.door.as_ref()
    }

    /// Authenticates the client by `Proxy-Authorization`; anonymous, if authentication is not required.
    pub(super) async fn of_request(&self, headers: &HeaderMap, client: &Client) -> Result<Client, Denied> {
        if !self.asks() || client.user.is_some() {
            return Ok(client.clone());
        }
        let value = only(headers, PROXY_AUTHORIZATION)?;
        let (scheme, rest) = value.split_once(' ').ok_or(Denied::Wrong)?;
        let rest = rest.trim_matches(' ');
        let user = if scheme.eq_ignore_ascii_case("bearer") {
            self.token(rest, client.ip())?
        } else if scheme.eq_ignore_ascii_case("basic") {
            let plain = Zeroizing::new(STANDARD.decode(rest).map_err(|_| Denied::Wrong)?);
            let colon = plain.iter().position(|octet| *octet == b':').ok_or(Denied::Wrong)?;
            self.password(&plain[..colon], &plain[colon + 1..], client.ip()).await?
        } else {
            return Err(Denied::Wrong);
        };
        Ok(client.known_as(Some(user)))
    }

    fn token(&self, token: &str, client: IpAddr) -> Result<Arc<str>, Denied> {
        let digest = digest::digest(&digest::SHA256, token.as_bytes());
        if let Some(name) = self.tokens.get(&under(&self.key, &[digest.as_ref()])) {
            return Ok(Arc::clone(name));
        }
        Err(if self.attempts.begin(client) { Denied::Wrong } else { Denied::TooOften })
    }

    /// The token `name` with this value, which clients that know only passwords send as one.
    fn token_of(&self, name: &str, value: &[u8]) -> Option<Arc<str>> {
        let digest = digest::digest(&digest::SHA256, value);
        let found = self.tokens.get(&under(&self.key, &[digest.as_ref()]))?;
        (**found == *name).then(|| Arc::clone(found))
    }

    /// Whose name and password these are.
    pub(super) async fn password(
        &self,
        name: &[u8],
        password: &[u8],
        client: IpAddr,
    ) -> Result<Arc<str>, Denied> {
        if name.len() > CREDENTIAL_OCTETS_MAX || password.len() > CREDENTIAL_OCTETS_MAX {
            return Err(Denied::Wrong);
        }
        let name = std::str::from_utf8(name).map_err(|_| Denied::Wrong)?;
        if let Some(user) = self.token_of(name, password) {
            return Ok(user);
        }
        if self.users.is_empty() {
            return Err(if self.attempts.begin(client) { Denied::Wrong } else { Denied::TooOften });
        }
        let key = under(&self.key, &[name.as_bytes(), &[0], password]);
        if let Some(cached) = self.remembered.get(&key) {
            return cached.outcome.clone();
        }
        // Whose hash stands in for a name that is none is the same each time, and known to nobody.
        let stand_in = under(&self.key, &[b"stand-in", &[0], name.as_bytes()]);
        let (user, hash) = self.users.hash_of(name, &stand_in).ok_or(Denied::Wrong)?;
        let password = Zeroizing::new(password.to_vec());
        let (attempts, workers, waiting) =
            (self.attempts.clone(), Arc::clone(&self.workers), self.waiting.clone());
        let look = move || async move {
            // A failure is not remembered: the next try is another one, and counts.
            let denied = |error| Failed { error, lifetime: Duration::ZERO };
            // Who may not try takes nobody's place.
            if !attempts.may_begin(client) {
                return Err(denied(Denied::TooOften));
            }
            let _slot = waiting.take(Some(client)).ok_or_else(|| denied(Denied::Busy))?;
            let worker = tokio::time::timeout(WAIT, workers.acquire_owned()).await;
            let Ok(Ok(worker)) = worker else { return Err(denied(Denied::Busy)) };
            if !attempts.begin(client) {
                return Err(denied(Denied::TooOften));
            }
            let looked = tokio::task::spawn_blocking(move || {
                let _worker = worker;
                // Also for a name that is none: it takes as long.
                let fits = hash.fits(&password);
                let user = user.filter(|_| fits);
                // Here, so that it counts too when anyone who asked has gone meanwhile.
                if user.is_some() {
                    attempts.succeeded(client);
                }
                user
            });
            match looked.await {
                Ok(Some(user)) => Ok(Fresh { value: user, lifetime: REMEMBERED }),
                _ => Err(denied(Denied::Wrong)),
            }
        };
        self.remembered.fetch(&key, look).await
    }

    /// The response to a client that failed to authenticate (RFC 9110 section 11.7).
    pub(super) fn refusal(&self, denied: Denied) -> Response<Body> {
        let status = match denied {
            // Nothing that a header could say would do.
            _ if self.users.is_empty() && self.tokens.is_empty() => StatusCode::FORBIDDEN,
            Denied::Missing | Denied::Wrong => StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            Denied::TooOften => StatusCode::TOO_MANY_REQUESTS,
            Denied::Busy => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut response = page::problem(status, "http_request_denied", &denied.to_string());
        if matches!(denied, Denied::TooOften | Denied::Busy) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
            return response;
        }
        let schemes = [
            (self.has_passwords(), r#"Basic realm="bulla proxy", charset="UTF-8""#),
            (!self.tokens.is_empty(), r#"Bearer realm="bulla proxy""#),
        ];
        for (_, scheme) in schemes.into_iter().filter(|(offered, _)| *offered) {
            response.headers_mut().append(PROXY_AUTHENTICATE, HeaderValue::from_static(scheme));
        }
        response
    }
}

/// The only value of a header.
fn only(headers: &HeaderMap, name: impl AsHeaderName) -> Result<&str, Denied> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(Denied::Missing)?;
    if values.next().is_some() {
        return Err(Denied::Wrong);
    }
    value.to_str().map_err(|_| Denied::Wrong)
}
