//! Keys in cloud key services: AWS KMS, Azure Key Vault, Google Cloud KMS. Each signature is one call, with a digest, or with the
//! message for Ed25519, which Azure does not support.
//!
//! The public key is fetched once, at startup. Every signature is verified against it before it is returned, so a corrupted
//! signature is never used. Throttled calls and temporary failures are retried within the caller's deadline and the key's retry
//! budget.

#[cfg(feature = "aws")]
mod aws;
#[cfg(feature = "aws")]
mod aws_encryption;
#[cfg(feature = "azure")]
mod azure;
#[cfg(feature = "gcp")]
mod gcp;

use std::fmt;
use std::time::{Duration, Instant};

use clouds::ApiError;
use futures_util::future::BoxFuture;
use keyless::Metrics;
use keyless::budget::Budget;
use keys::verify::{input_for_service, verifies};
use keys::{CallLimit, Deadline, Destination, Hash, KeyType, Scheme, SignError, Signer};
use outbound::pool::Verdict;
use outbound::retry::{self, Policy};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::Semaphore;

#[cfg(feature = "aws")]
pub use aws::AwsKms;
#[cfg(feature = "aws")]
pub use aws_encryption::{KmsError, KmsKey};
#[cfg(feature = "azure")]
pub use azure::{AzureKey, AzureOptions, open as open_azure};
#[cfg(feature = "gcp")]
pub use gcp::{GcpKey, GcpOptions, open as open_gcp};

/// Maximum concurrent calls for one key: the number of connections that the HTTP client keeps to one server. At 30 ms a call this
/// gives a thousand signatures a second, the default quota of the services. Further calls wait until their deadline.
const CALLS_PER_KEY_MAX: usize = 32;
/// Timeout of one call; services respond within 100 ms.
const CALL_LIMIT: Duration = Duration::from_secs(2);
/// Timeout for fetching the public key at startup; the first call also looks up credentials.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Retry policy of a call that was throttled or failed temporarily.
const RETRY: Policy = Policy { base: Duration::from_millis(50), cap: Duration::from_secs(1), retries: 4 };

/// Minimum time between two log entries about one failing key; metrics count each failure.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// A key of a cloud service that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CloudKeyError {
    /// The configured key name is invalid.
    #[error("{key}: {problem}")]
    Name {
        /// The key as the configuration names it.
        key: String,
        /// Description of the error.
        problem: &'static str,
    },
    /// The service did not return the public key.
    #[error("{service} does not return the public key of {key}: {answer}")]
    Refused {
        /// Name of the service that refused the request.
        service: &'static str,
        /// The key as the configuration names it.
        key: String,
        /// The error response of the service.
        answer: ApiError,
        /// The required permission or role.
        needs: &'static str,
    },
    /// The key does not sign, or supports no scheme that Bulla uses.
    #[error("{service}: {key} {problem}")]
    Unusable {
        /// Name of the service that contains the key.
        service: &'static str,
        /// The key as the configuration names it.
        key: String,
        /// Reason why the key cannot be used.
        problem: String,
    },
}

impl CloudKeyError {
    /// Returns advice for the operator: what to correct in the configuration or in the cloud.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Name { .. } => "correct the name in [keys]".to_owned(),
            Self::Refused { answer, needs, .. } if answer.denied => {
                format!("check the credentials of this process, and grant them {needs}")
            }
            Self::Refused { answer, .. } if answer.code == "credentials" => {
                "check the credentials of this process, and that the credentials endpoint is reachable".to_owned()
            }
            Self::Refused { .. } => "check the key's name, its region, and that the service is reachable".to_owned(),
            Self::Unusable { .. } => {
                "name an enabled signing key: RSA of 2,048, 3,072 or 4,096 bits, P-256, P-384, P-521 or, except on Azure, Ed25519"
                    .to_owned()
            }
        }
    }
}

/// A key service. Each method makes one call, without retries.
trait Service: Send + Sync + fmt::Debug {
    /// Waits until there are credentials for the next call. This time does not count towards the call's timeout. A fetch continues
    /// for the next request when this future is dropped.
    fn ready(&self) -> BoxFuture<'_, Result<(), ApiError>>;

    /// Signs `input`: a digest, or a message for Ed25519. ECDSA signatures are DER.
    fn sign<'a>(&'a self, scheme: Scheme, input: &'a [u8]) -> BoxFuture<'a, Result<Vec<u8>, ApiError>>;
}

/// A service's description of a key.
struct KeyDescription {
    /// DER SubjectPublicKeyInfo.
    spki: Vec<u8>,
    /// Signature schemes that the key supports.
    schemes: Vec<Scheme>,
}

/// Properties that all keys of one service share.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// Name of the service in errors and metrics.
    name: &'static str,
    /// Short name of the service in names of call pools.
    short: &'static str,
    /// Permissions that signing needs, for hints in errors.
    needs: &'static str,
    /// Longest message in bytes that the service signs without prehashing; 0 if it signs digests only.
    message_max: usize,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct CallLabels {
    service: &'static str,
    outcome: &'static str,
}

/// Counters of signature calls. Cheap to clone; clones share the counters.
#[derive(Clone, Debug, Default)]
pub struct Calls(Family<CallLabels, Counter>);

impl Calls {
    /// Creates the counters and registers them in `metrics`. Call it only once for each registry.
    #[must_use]
    pub fn of(metrics: &Metrics) -> Self {
        let calls = Self::default();
        let shown = calls.clone();
        metrics.add_registration(move |registry| {
            registry.register(
                "bulla_keyless_cloud_signatures",
                "Signatures requested from cloud key services, by outcome; wrong: rejected because the key's own public \
                 key did not verify the signature",
                shown.0.clone(),
            );
        });
        calls
    }

    fn count(&self, service: &'static str, outcome: &'static str) {
        self.0.get_or_create(&CallLabels { service, outcome }).inc();
    }

    /// Returns the number of calls with this outcome.
    #[must_use]
    pub fn counted(&self, service: &'static str, outcome: &'static str) -> u64 {
        self.0.get_or_create(&CallLabels { service, outcome }).get()
    }
}

/// A private key in a cloud key service.
pub struct CloudKey {
    name: String,
    destination: String,
    of: Kind,
    kind: KeyType,
    spki: Vec<u8>,
    schemes: Vec<Scheme>,
    service: Box<dyn Service>,
    permits: Semaphore,
    budget: Budget,
    /// Time of the last log entry about a failure.
    logged_at: Mutex<Option<Instant>>,
    calls: Calls,
}

impl CloudKey {
    /// Creates the key. `location` is shared by all keys of one region or vault.
    fn new(
        (name, location): (String, &str),
        of: Kind,
        description: KeyDescription,
        service: Box<dyn Service>,
        calls: &Calls,
    ) -> Result<Self, CloudKeyError> {
        let KeyDescription { spki, schemes } = description;
        let unusable = |problem: &str| CloudKeyError::Unusable {
            service: of.name,
            key: name.clone(),
            problem: problem.into(),
        };
        let kind = KeyType::of_spki(&spki);
        let kind = kind.ok_or_else(|| unusable("has an unsupported size or curve"))?;
        // Only schemes that the service lists and the public key supports.
        let schemes: Vec<Scheme> = schemes.into_iter().filter(|scheme| fits(*scheme, kind)).collect();
        if schemes.is_empty() {
            return Err(unusable("supports no signature algorithm that is used here"));
        }
        Ok(Self {
            destination: format!("{}:{location}", of.short),
            name,
            of,
            kind,
            spki,
            schemes,
            service,
            permits: Semaphore::new(CALLS_PER_KEY_MAX),
            budget: Budget::default(),
            logged_at: Mutex::default(),
            calls: calls.clone(),
        })
    }

    /// Returns the key as the configuration names it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    async fn sign_by(&self, scheme: Scheme, input: &[u8], deadline: Deadline) -> Result<Vec<u8>, SignError> {
        let misfit = scheme.check(self.kind, input.len());
        misfit.map_err(|misfit| SignError::Failed(misfit.to_string()))?;
        if scheme == Scheme::Ed25519 && input.len() > self.of.message_max {
            let (service, most, given) = (self.of.name, self.of.message_max, input.len());
            return Err(SignError::Failed(format!(
                "{service} signs messages of at most {most} bytes; this message has {given}"
            )));
        }
        let given = input_for_service(self.kind, scheme, input);
        let given = given.filter(|(own, _)| self.schemes.contains(own));
        let (own, input) = given.ok_or_else(|| {
            SignError::Failed(format!(
                "{} signs with this key only by {}",
                self.of.name,
                shown(&self.schemes)
            ))
        })?;
        self.budget.earn();
        let mut pending =
            PendingSignature { key: self, deadline, operation: Mutex::new("its turn"), is_counted: false };
        let permit = tokio::time::timeout_at(deadline.into(), self.permits.acquire()).await;
        let permit = permit.map_err(|_| SignError::Late)?;
        let _permit = permit.map_err(|_| SignError::Unavailable("shutting down".to_owned()))?;
        let ready = || {
            *pending.operation.lock() = "credentials";
            self.service.ready()
        };
        let call = || {
            *pending.operation.lock() = "the service";
            self.service.sign(own, &input)
        };
        let signature = match call_with_retry(ready, call, deadline, || self.budget.spend()).await {
            Ok(signature) => signature,
            Err(CallFailure::Late) => return Err(SignError::Late),
            Err(CallFailure::Answer(answer)) => {
                pending.count_outcome(outcome(&answer));
                return Err(self.failed(&answer));
            }
        };
        if !verifies(&self.spki, self.kind, own, &input, &signature) {
            pending.count_outcome("wrong");
            tracing::error!(
                key = self.name,
                service = self.of.name,
                "an invalid signature from a cloud key service was rejected"
            );
            let why = format!(
                "{} returned an invalid signature for this key; the signature was rejected",
                self.of.name
            );
            return Err(SignError::Failed(why));
        }
        pending.count_outcome("done");
        Ok(signature)
    }

    /// Returns whether a failure may be logged now.
    fn may_log(&self) -> bool {
        let mut logged_at = self.logged_at.lock();
        let may = logged_at.is_none_or(|logged_at| logged_at.elapsed() >= LOG_EVERY);
        if may {
            *logged_at = Some(Instant::now());
        }
        may
    }

    /// Converts a failed call to an error for clients: they see only the service's code. The service's message, which may name
    /// accounts, and the hint go to the log.
    fn failed(&self, answer: &ApiError) -> SignError {
        if self.may_log() {
            let hint = if answer.denied { self.of.needs } else { "" };
            let (key, service) = (&self.name, self.of.name);
            tracing::warn!(key, service, %answer, needs = hint, "a key in a cloud does not sign");
        }
        let what = format!("{} answers {}", self.of.name, answer.code);
        match answer.verdict {
            Verdict::Throttled { .. } | Verdict::Transient if !answer.denied => SignError::Unavailable(what),
            _ => SignError::Failed(what),
        }
    }
}

/// A signature in progress. Its outcome is counted once, even if the caller's deadline has passed.
struct PendingSignature<'a> {
    key: &'a CloudKey,
    deadline: Deadline,
    /// The operation in progress, for the log.
    operation: Mutex<&'static str>,
    is_counted: bool,
}

impl PendingSignature<'_> {
    fn count_outcome(&mut self, outcome: &'static str) {
        self.is_counted = true;
        self.key.calls.count(self.key.of.name, outcome);
    }
}

impl Drop for PendingSignature<'_> {
    fn drop(&mut self) {
        if self.is_counted {
            return;
        }
        if Instant::now() < self.deadline {
            return self.count_outcome("gone");
        }
        self.count_outcome("late");
        if self.key.may_log() {
            let (key, service, check_not_timed_out) =
                (&self.key.name, self.key.of.name, *self.operation.get_mut());
            tracing::warn!(key, service, check_not_timed_out, "a key in a cloud does not sign in time");
        }
    }
}

impl Signer for CloudKey {
    fn key_type(&self) -> KeyType {
        self.kind
    }

    fn spki(&self) -> &[u8] {
        &self.spki
    }

    fn sign_digest<'a>(
        &'a self,
        scheme: Scheme,
        input: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        Box::pin(self.sign_by(scheme, input, deadline))
    }

    fn destination(&self) -> Option<Destination<'_>> {
        Some(Destination { name: &self.destination, at_once: CallLimit::OfKey(CALLS_PER_KEY_MAX) })
    }
}

impl fmt::Debug for CloudKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CloudKey({}, {}, {})", self.of.name, self.kind, self.name)
    }
}

/// A call that failed after all retries.
enum CallFailure {
    /// The last error response.
    Answer(ApiError),
    /// The deadline passed before a response arrived.
    Late,
}

/// Returns the outcome label for metrics.
fn outcome(answer: &ApiError) -> &'static str {
    match answer.verdict {
        _ if answer.denied => "denied",
        Verdict::Throttled { .. } => "throttled",
        Verdict::Transient => "unavailable",
        Verdict::Final => "refused",
    }
}

/// Repeats the call until a response is final, the deadline passes or the retry budget is used up. Waits for credentials before
/// each attempt.
async fn call_with_retry<T, R, F>(
    mut ready: impl FnMut() -> R,
    mut call: impl FnMut() -> F,
    deadline: Deadline,
    may_retry: impl Fn() -> bool,
) -> Result<T, CallFailure>
where
    R: Future<Output = Result<(), ApiError>>,
    F: Future<Output = Result<T, ApiError>>,
{
    let mut waits = RETRY.waits(retry::random);
    loop {
        let is_ready =
            tokio::time::timeout_at(deadline.into(), ready()).await.map_err(|_| CallFailure::Late)?;
        let until = deadline.min(Instant::now() + CALL_LIMIT);
        let answer = match is_ready {
            Ok(()) => match tokio::time::timeout_at(until.into(), call()).await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(answer)) => answer,
                Err(_) if until == deadline => return Err(CallFailure::Late),
                Err(silent) => ApiError::unreachable(&silent),
            },
            Err(answer) => answer,
        };
        let wait = match answer.verdict {
            Verdict::Final => None,
            Verdict::Transient => waits.next(),
            Verdict::Throttled { retry_after } => {
                waits.next().map(|wait| wait.max(retry_after.unwrap_or_default()))
            }
        };
        let in_time = |wait: &Duration| Instant::now().checked_add(*wait).is_some_and(|then| then < deadline);
        match wait.filter(in_time).filter(|_| may_retry()) {
            Some(wait) => tokio::time::sleep(wait).await,
            None => return Err(CallFailure::Answer(answer)),
        }
    }
}

/// Fetches the description of a key at startup.
async fn description<T, R, F>(
    of: Kind,
    key: &str,
    ready: impl FnMut() -> R,
    call: impl FnMut() -> F,
) -> Result<T, CloudKeyError>
where
    R: Future<Output = Result<(), ApiError>>,
    F: Future<Output = Result<T, ApiError>>,
{
    let found = call_with_retry(ready, call, Instant::now() + START_LIMIT, || true).await;
    found.map_err(|failure| CloudKeyError::Refused {
        service: of.name,
        key: key.to_owned(),
        answer: match failure {
            CallFailure::Answer(answer) => answer,
            CallFailure::Late => ApiError::unreachable(&SignError::Late),
        },
        needs: of.needs,
    })
}

/// Returns whether a key of this type can sign with `scheme` in a key service. ECDSA requires the hash that belongs to the curve.
fn fits(scheme: Scheme, kind: KeyType) -> bool {
    match scheme {
        Scheme::RsaPkcs1(hash) | Scheme::RsaPss(hash) => {
            kind.rsa_bits().is_some() && matches!(hash, Hash::Sha256 | Hash::Sha384 | Hash::Sha512)
        }
        Scheme::Ecdsa(_) => Scheme::of(kind) == Some(scheme),
        Scheme::Ed25519 => kind == KeyType::Ed25519,
    }
}

/// Formats signature schemes as one line of a message.
fn shown(schemes: &[Scheme]) -> String {
    let hash = |hash: &Hash| match hash {
        Hash::Sha384 => "SHA-384",
        Hash::Sha512 => "SHA-512",
        _ => "SHA-256",
    };
    let one = |scheme: &Scheme| match scheme {
        Scheme::RsaPkcs1(of) => format!("PKCS #1 v1.5 with {}", hash(of)),
        Scheme::RsaPss(of) => format!("PSS with {}", hash(of)),
        Scheme::Ecdsa(_) => "ECDSA".to_owned(),
        Scheme::Ed25519 => "Ed25519".to_owned(),
    };
    schemes.iter().map(one).collect::<Vec<_>>().join(", ")
}
