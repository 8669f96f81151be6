//! Google Cloud application default credentials, which cache and refresh their tokens themselves. After a failure that Google's
//! library considers permanent (a deleted key, a missing role) the library sends no further requests. Bulla then creates new
//! credentials, so that a fix by the operator takes effect without a restart.

use std::fmt;
use std::time::Duration;

use google_cloud_auth::credentials::{Builder, CacheableResource, Credentials, CredentialsProvider};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::ApiError;

/// Scope of all Google Cloud APIs, limited by the permissions of the account.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Delay between the creation of credentials that failed permanently and the next attempt. Doubles after each further failure.
const RECREATE_AFTER: Duration = Duration::from_secs(1);
/// Longest delay, and thus the longest time until a fix takes effect.
const RECREATE_AFTER_MAX: Duration = Duration::from_secs(60);

/// Returns the application default credentials: `GOOGLE_APPLICATION_CREDENTIALS`, the credentials of gcloud, or the metadata
/// server. Sends no request. Must be called on a Tokio runtime.
///
/// # Errors
/// [`ApiError`], denied: when no credentials are configured.
pub fn standard() -> Result<Credentials, ApiError> {
    let make =
        || Builder::default().with_scopes([SCOPE]).build().map_err(|error| ApiError::credentials(&error));
    Ok(RecreatedCredentials::new(Box::new(make))?.into())
}

type MakeCredentials = Box<dyn Fn() -> Result<Credentials, ApiError> + Send + Sync>;

/// Credentials that are created again after a permanent failure, when the next request needs them.
struct RecreatedCredentials {
    make: MakeCredentials,
    /// Current credentials. The lock is never held across an await.
    now: Mutex<Current>,
}

struct Current {
    credentials: Credentials,
    /// Generation of the current credentials.
    number: u64,
    /// Number of times the credentials were created again since they last worked.
    failures: u32,
    recreate_at: Instant,
}

impl RecreatedCredentials {
    fn new(make: MakeCredentials) -> Result<Self, ApiError> {
        let credentials = make()?;
        let now = Current { credentials, number: 0, failures: 0, recreate_at: Instant::now() };
        Ok(Self { make, now: Mutex::new(now) })
    }

    fn current(&self) -> (Credentials, u64) {
        let now = self.now.lock();
        (now.credentials.clone(), now.number)
    }

    fn record_success(&self, number: u64) {
        let mut now = self.now.lock();
        if now.number == number && now.failures > 0 {
            (now.failures, now.recreate_at) = (0, Instant::now());
        }
    }

    /// Returns credentials that replace generation `number`, which failed permanently; `None` before the delay has passed.
    fn replacement_for(&self, number: u64) -> Option<Credentials> {
        let mut now = self.now.lock();
        if now.number != number {
            return Some(now.credentials.clone());
        }
        if Instant::now() < now.recreate_at {
            return None;
        }
        let wait = RECREATE_AFTER.saturating_mul(1_u32.checked_shl(now.failures).unwrap_or(u32::MAX));
        now.failures = now.failures.saturating_add(1);
        now.recreate_at = Instant::now() + wait.min(RECREATE_AFTER_MAX);
        // The caller gets the reason. The library's error text may quote whole responses, tokens included, and is not logged.
        tracing::warn!("the Google Cloud credentials failed permanently: creating new credentials");
        match (self.make)() {
            Ok(credentials) => {
                now.credentials = credentials;
                now.number += 1;
                Some(now.credentials.clone())
            }
            Err(error) => {
                tracing::warn!(%error, "new Google Cloud credentials cannot be created");
                None
            }
        }
    }
}

impl CredentialsProvider for RecreatedCredentials {
    async fn headers(
        &self,
        extensions: Extensions,
    ) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        let (credentials, number) = self.current();
        let error = match credentials.headers(extensions.clone()).await {
            Err(error) if !error.is_transient() => error,
            result => {
                if result.is_ok() {
                    self.record_success(number);
                }
                return result;
            }
        };
        match self.replacement_for(number) {
            Some(next) => next.headers(extensions).await,
            None => Err(error),
        }
    }

    async fn universe_domain(&self) -> Option<String> {
        self.current().0.universe_domain().await
    }
}

impl fmt::Debug for RecreatedCredentials {
    /// Omits the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewing")
    }
}

/// Returns the authentication headers for a request with `credentials`.
///
/// # Errors
/// [`ApiError`] when the credentials return no token: denied, unless the failure is temporary.
#[crate::boxed]
pub async fn headers(credentials: &Credentials) -> Result<HeaderMap, ApiError> {
    let failed = |error: CredentialsError| {
        if error.is_transient() {
            ApiError::credentials_unavailable(&error)
        } else {
            ApiError::credentials(&error)
        }
    };
    match credentials.headers(Extensions::new()).await.map_err(failed)? {
        CacheableResource::New { data, .. } => Ok(data),
        // Returned only for conditional requests, which are not used here.
        CacheableResource::NotModified => Err(ApiError::malformed("the credentials returned no headers")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use google_cloud_auth::credentials::{EntityTag, user_account};

    use super::*;

    /// Credentials with one fixed result.
    #[derive(Debug)]
    struct Saying(Option<bool>);

    impl CredentialsProvider for Saying {
        async fn headers(&self, _: Extensions) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
            match self.0 {
                None => Ok(CacheableResource::New { entity_tag: EntityTag::new(), data: HeaderMap::new() }),
                Some(is_transient) => Err(CredentialsError::from_msg(is_transient, "no")),
            }
        }

        async fn universe_domain(&self) -> Option<String> {
            None
        }
    }

    /// The state of a test: how often credentials were created, and whether they work.
    #[derive(Default)]
    struct World {
        made: AtomicUsize,
        good: AtomicUsize,
    }

    fn renewing(world: &Arc<World>, fails: bool) -> Credentials {
        let world = Arc::clone(world);
        let make = move || {
            world.made.fetch_add(1, Relaxed);
            let says = if world.good.load(Relaxed) > 0 { None } else { Some(fails) };
            Ok(Credentials::from(Saying(says)))
        };
        RecreatedCredentials::new(Box::new(make)).unwrap().into()
    }

    /// Requests a token every second.
    #[tokio::test(start_paused = true)]
    async fn credentials_are_rebuilt_with_backoff_after_permanent_failure() {
        let world = Arc::new(World::default());
        let credentials = renewing(&world, false);
        let mut at = Vec::new();
        for second in 0..200 {
            let before = world.made.load(Relaxed);
            assert!(headers(&credentials).await.unwrap_err().denied);
            let made = world.made.load(Relaxed) - before;
            at.extend(std::iter::repeat_n(second, made));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(at, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
        // Once the operator has fixed the problem, the next credentials work and are kept.
        world.good.store(1, Relaxed);
        let mut waited = 0;
        while headers(&credentials).await.is_err() {
            waited += 1;
            assert!(waited <= 60, "a minute at most");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let made = world.made.load(Relaxed);
        for _ in 0..100 {
            headers(&credentials).await.unwrap();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(world.made.load(Relaxed), made);
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_are_not_rebuilt_after_transient_failure() {
        let world = Arc::new(World::default());
        let credentials = renewing(&world, true);
        for _ in 0..100 {
            assert!(headers(&credentials).await.is_err());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(world.made.load(Relaxed), 1);
    }

    /// Tests Google's library against a server that first refuses permanently: without [`RecreatedCredentials`] the library would never
    /// recover.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn gcp_library_credentials_recover_after_permanent_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}/token", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for request_index in 0.. {
                let Ok((mut stream, _)) = listener.accept() else { return };
                let mut request = BufReader::new(stream.try_clone().unwrap());
                let (mut line, mut body_length) = (String::new(), 0);
                while request.read_line(&mut line).unwrap() > 2 {
                    if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        body_length = length.trim().parse().unwrap();
                    }
                    line.clear();
                }
                request.read_exact(&mut vec![0; body_length]).unwrap();
                let (status, body) = match request_index {
                    0 => ("400 Bad Request", r#"{"error":"invalid_grant"}"#),
                    _ => ("200 OK", r#"{"access_token":"mended","expires_in":3600,"token_type":"Bearer"}"#),
                };
                write!(
                    stream,
                    "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                )
                .unwrap();
            }
        });
        let user = serde_json::json!({ "type": "authorized_user", "client_id": "id", "client_secret": "secret",
            "refresh_token": "token" });
        let make = move || {
            let builder = user_account::Builder::new(user.clone()).with_token_uri(&uri);
            builder.build().map_err(|error| ApiError::credentials(&error))
        };
        let alone = make().unwrap();
        for _ in 0..3 {
            assert!(headers(&alone).await.unwrap_err().denied);
        }
        let credentials = Credentials::from(RecreatedCredentials {
            now: Mutex::new(Current {
                credentials: alone.clone(),
                number: 0,
                failures: 0,
                recreate_at: Instant::now(),
            }),
            make: Box::new(make),
        });
        let found = headers(&credentials).await.unwrap();
        assert_eq!(found.get("authorization").unwrap(), "Bearer mended");
        assert!(headers(&alone).await.is_err(), "the library asks nobody again");
    }
}
