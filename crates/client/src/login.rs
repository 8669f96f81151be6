//! Authentication of a client.

use std::sync::Arc;
use std::time::Duration;

use api::credhub::TokenView;
use axum::body::Bytes;
use flight::{Cache, Failed, Fresh};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method};
use keys::Secret;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

use crate::Error;
use crate::transport::{Pool, StoreRequest, jitter, wiped};

/// Part of a token's lifetime for which the token is used. The rest allows for clock differences and latency.
const USABLE_FRACTION: f64 = 0.9;
/// Maximum random part by which the time of use is shortened, so that clients that started together do not log in together.
const SPREAD: f64 = 0.1;
/// A new token is requested in the last 1/`PARTS_LEFT` (a fifth) of the time for which the old token is used.
const PARTS_LEFT: u32 = 5;
/// Time for which a refused login is not retried, because the store delays repeated failures.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// Timeout of a request for a token. Callers that wait have their own deadline; the background renewal has none.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Lifetime of a token if the issuer names none, seconds.
const EXPIRES_IN: u64 = 60;
/// Errors for which a new token may help.
const EXPIRED_TOKEN_ERRORS: [&str; 2] = ["access_token_expired", "invalid_token"];

pub(crate) type Token = Arc<Secret>;

/// Source of the token that a client's requests contain.
pub(crate) enum Login {
    /// No token: the client authenticates with a client certificate, or not at all.
    None,
    /// A token that is valid until it is revoked.
    Bearer(Token),
    /// Client credentials with which the client requests tokens (RFC 6749 section 4.4).
    Client { body: Bytes, tokens: Cache<(), Token, Error> },
}

impl Login {
    pub(crate) fn client(id: &str, secret: &Secret) -> Self {
        let mut body = Zeroizing::new(Vec::new());
        body.extend_from_slice(b"grant_type=client_credentials&response_type=token&client_id=");
        escape(id, &mut body);
        body.extend_from_slice(b"&client_secret=");
        escape(secret.expose(), &mut body);
        Self::Client { body: wiped(body), tokens: Cache::with_entries_max(1) }
    }

    /// Returns a valid token. Concurrent callers share one login.
    pub(crate) async fn token(&self, pool: &Arc<Pool>) -> Result<Option<Token>, Error> {
        let (body, tokens) = match self {
            Self::None => return Ok(None),
            Self::Bearer(token) => return Ok(Some(Arc::clone(token))),
            Self::Client { body, tokens } => (body, tokens),
        };
        let (pool, body) = (Arc::clone(pool), body.clone());
        let make = move || issue(pool, body);
        if let Some(known) = tokens.get(&())
            && let Ok(token) = &known.outcome
        {
            if known.expires_soon(Instant::now(), PARTS_LEFT) && tokens.under_way() == 0 {
                // This token is still usable.
                let tokens = tokens.clone();
                tokio::spawn(async move { tokens.refresh(&(), make).await });
            }
            return Ok(Some(Arc::clone(token)));
        }
        tokens.fetch(&(), make).await.map(Some)
    }

    /// Handles a refused token. Returns whether a new token may help.
    pub(crate) fn ended(&self, token: Option<&Token>, error: &str) -> bool {
        let Self::Client { tokens, .. } = self else { return false };
        if !EXPIRED_TOKEN_ERRORS.contains(&error) {
            return false;
        }
        // Another caller may have already requested a new token.
        let same = |known: &Token| token.is_some_and(|token| Arc::ptr_eq(known, token));
        if tokens.get(&()).is_some_and(|known| known.outcome.as_ref().is_ok_and(same)) {
            tokens.invalidate(&());
        }
        true
    }
}

async fn issue(pool: Arc<Pool>, body: Bytes) -> Result<Fresh<Token>, Failed<Error>> {
    let form = HeaderValue::from_static("application/x-www-form-urlencoded");
    let request = StoreRequest {
        method: Method::POST,
        path: "/oauth/token".to_owned(),
        headers: HeaderMap::from_iter([(CONTENT_TYPE, form)]),
        body: Some(body),
        single_attempt: true,
        forwarded: false,
    };
    pool.counters.logins.add();
    let issued = async { pool.exchange(&request, None).await?.checked()?.json() };
    let timeout_error =
        |_| Err(Error::Unavailable(format!("no response to the login within {TOKEN_TIMEOUT:?}")));
    let issued = timeout(TOKEN_TIMEOUT, issued).await.unwrap_or_else(timeout_error);
    let failed = |error: Error| {
        let lifetime = if error.is_unavailable() { Duration::ZERO } else { REFUSED_FOR };
        Failed { error, lifetime }
    };
    let issued = issued.map_err(failed)?;
    let issued: TokenView<Secret> = serde_json::from_value(issued)
        .map_err(|_| failed(Error::Unavailable("the response to the login has no token".to_owned())))?;
    let good_for = Duration::from_secs(issued.expires_in.unwrap_or(EXPIRES_IN)).mul_f64(USABLE_FRACTION);
    Ok(Fresh { value: Arc::new(issued.access_token), lifetime: jitter(good_for, SPREAD) })
}

/// Percent-encodes form data (WHATWG URL section 5.2), directly into a buffer that is wiped.
fn escape(text: &str, into: &mut Vec<u8>) {
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'*');
    for part in utf8_percent_encode(text, ESCAPED) {
        into.extend_from_slice(part.as_bytes());
    }
}
