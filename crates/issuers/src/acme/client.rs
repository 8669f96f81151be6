//! Requests to an ACME server: directory, nonces, signatures, problems (RFC 8555 section 6).

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use callout::{HttpClient, HttpError, Reply, Request};
use parking_lot::Mutex;
use serde_json::{Value, json};
use store::Clock;
use x509::UnixTime;

use super::wire::{Directory, Problem};
use crate::error::IssuerError;
use crate::jose::JwsKey;

/// Maximum number of cached nonces per ACME server: the usual number of concurrent orders. Servers expire old nonces anyway.
const NONCES_MAX: usize = 32;
/// Maximum attempts to sign a request again because of a rejected nonce. If a server rejects one in five at random, as Pebble can,
/// ten rejections in a row happen once in ten million requests.
const NONCE_TRIES: usize = 10;
/// Time in µs for which a directory is cached. Its URLs and terms rarely change.
const DIRECTORY_LIFE_US: i64 = 3_600_000_000;

/// The signer of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Signed<'a> {
    /// Signed by the account with this URL.
    Account(&'a JwsKey, &'a str),
    /// Signed by a key only: for a new account, or a revocation with a certificate's key.
    Key(&'a JwsKey),
}

/// Client of an ACME server.
#[derive(Debug)]
pub(super) struct Client {
    http: HttpClient,
    directory_url: String,
    clock: Clock,
    directory: Mutex<Option<(i64, Arc<Directory>)>>,
    nonces: Mutex<Vec<String>>,
}

/// An error with its problem document.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) problem: Problem,
    pub(super) error: IssuerError,
    /// HTTP status. 0 when there was no response.
    pub(super) status: u16,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        IssuerError::from(error).into()
    }
}

impl From<IssuerError> for Failure {
    fn from(error: IssuerError) -> Self {
        Self { problem: Problem::default(), error, status: 0 }
    }
}

impl From<Failure> for IssuerError {
    fn from(failed: Failure) -> Self {
        failed.error
    }
}

impl Client {
    pub(super) fn new(http: HttpClient, directory_url: String, clock: Clock) -> Self {
        Self { http, directory_url, clock, directory: Mutex::default(), nonces: Mutex::default() }
    }

    pub(super) fn now(&self) -> UnixTime {
        UnixTime(self.clock.now_seconds())
    }

    /// Returns the directory, cached or fetched.
    pub(super) async fn directory(&self, deadline: Instant) -> Result<Arc<Directory>, IssuerError> {
        let now = self.clock.now_us();
        if let Some((since, directory)) = &*self.directory.lock()
            && (0..DIRECTORY_LIFE_US).contains(&(now - since))
        {
            return Ok(Arc::clone(directory));
        }
        let reply =
            self.http.send(Request::get(&self.directory_url), deadline, "fetching the directory").await?;
        if !reply.status.is_success() {
            return Err(Problem::of(&reply).error(&reply, self.now()));
        }
        let directory: Arc<Directory> = Arc::new(reply.json()?);
        *self.directory.lock() = Some((now, Arc::clone(&directory)));
        Ok(directory)
    }

    /// Sends an unsigned GET request, used only for renewal information.
    pub(super) async fn get(&self, url: &str, deadline: Instant) -> Result<Reply, IssuerError> {
        Ok(self.http.send(Request::get(url), deadline, "fetching renewal information").await?)
    }

    /// Sends a signed POST request with a payload; `None` is POST-as-GET (RFC 8555 section 6.3). Retries with a new nonce if the
    /// server rejects the nonce.
    pub(super) async fn post(
        &self,
        url: &str,
        payload: Option<&Value>,
        signed: Signed<'_>,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let payload = payload.map_or_else(Vec::new, |value| value.to_string().into_bytes());
        for _ in 0..NONCE_TRIES {
            let nonce = self.nonce(deadline).await?;
            let body = self.body(url, &payload, signed, &nonce, deadline).await?;
            let request = Request::post(url, "application/jose+json", body);
            let reply = self.http.send(request, deadline, "waiting for the ACME server").await?;
            self.keep_nonce(&reply);
            if reply.status.is_success() {
                return Ok(reply);
            }
            let problem = Problem::of(&reply);
            if problem.code() != "badNonce" {
                let error = problem.error(&reply, self.now());
                return Err(Failure { problem, error, status: reply.status.as_u16() });
            }
        }
        Err(IssuerError::unavailable("the server rejects the nonces that it issued").into())
    }

    async fn body(
        &self,
        url: &str,
        payload: &[u8],
        signed: Signed<'_>,
        nonce: &str,
        deadline: Instant,
    ) -> Result<Vec<u8>, IssuerError> {
        let (key, who, value) = match signed {
            Signed::Account(key, kid) => (key, "kid", json!(kid)),
            Signed::Key(key) => (key, "jwk", key.jwk().clone()),
        };
        let protected = json!({ "alg": key.algorithm(), who: value, "nonce": nonce, "url": url });
        let jws = key.sign_flattened(&protected, payload, deadline).await.map_err(|error| {
            IssuerError::Storage { reason: format!("the account key cannot be used: {error}") }
        })?;
        Ok(jws.to_string().into_bytes())
    }

    async fn nonce(&self, deadline: Instant) -> Result<String, IssuerError> {
        // Use the newest nonce first: it stays valid longest.
        let cached = self.nonces.lock().pop();
        if let Some(nonce) = cached {
            return Ok(nonce);
        }
        let directory = self.directory(deadline).await?;
        let request = Request { method: http::Method::HEAD, ..Request::get(&directory.new_nonce) };
        let reply = self.http.send(request, deadline, "fetching a nonce").await?;
        match reply.header("replay-nonce") {
            Some(nonce) => Ok(nonce.to_owned()),
            None if reply.status.is_success() => {
                Err(IssuerError::unavailable("the server returned no nonce"))
            }
            None => Err(Problem::of(&reply).error(&reply, self.now())),
        }
    }

    fn keep_nonce(&self, reply: &Reply) {
        let Some(nonce) = reply.header("replay-nonce") else { return };
        let mut nonces = self.nonces.lock();
        if nonces.len() >= NONCES_MAX {
            nonces.remove(0);
        }
        nonces.push(nonce.to_owned());
    }
}
