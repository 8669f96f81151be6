//! Passwords of users: argon2id on blocking threads, with bounded concurrency.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::rand;
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as B64;
use futures_util::FutureExt;
use serde_json::json;
use store::{AuditEvent, Identity};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::access::AccessControl;
use crate::access::admin;
use crate::problem::Problem;

/// Minimum characters of a password. NIST SP 800-63B section 3.1.1 requires 15 for a password without a second factor, otherwise 8.
pub(crate) const PASSWORD_CHARS_MIN: usize = 12;

pub(crate) const PASSWORD_BYTES_MAX: usize = 256;

/// Memory of argon2id in KiB. Memory, passes and lanes are as in RFC 9106 section 4 for constrained memory. With one lane,
/// each hash uses one core.
const MEMORY_KIB: u32 = 64 * 1024;
const PASSES: u32 = 3;
const LANES: u32 = 1;

/// Bytes of a salt and of a hash.
const SALT: usize = 16;
const HASH: usize = 32;

/// Maximum concurrent hashes, at most the number of cores. Each hash takes [`MEMORY_KIB`]: 256 MiB in total.
const HASHES_MAX: usize = 4;

/// Maximum requests that wait for a hash: a few seconds of work for one core.
const WAITING_MAX: usize = 64;

/// Maximum time that a hash waits for a core.
const WAIT: Duration = Duration::from_secs(10);

/// `Retry-After` in seconds when the queue was full, or no core was free within [`WAIT`].
const BUSY_RETRY_SECONDS: u64 = 5;

/// The queue of hashes in this process.
static HASHING: LazyLock<HashQueue> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    HashQueue::new(cores.min(HASHES_MAX), WAITING_MAX)
});

/// A bounded queue before a bounded number of threads that compute hashes.
struct HashQueue {
    /// One permit for each hash that runs or waits.
    slots: Arc<Semaphore>,
    /// One permit for each hash that is being computed. Waiting hashes have none.
    cores: Arc<Semaphore>,
}

impl HashQueue {
    fn new(at_once: usize, waiting: usize) -> Self {
        Self { slots: Arc::new(Semaphore::new(at_once + waiting)), cores: Arc::new(Semaphore::new(at_once)) }
    }

    /// Runs `work` on a blocking thread once a core is free.
    ///
    /// # Errors
    /// 503 with `Retry-After` when the queue is full, or no core is free within [`WAIT`].
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
        let busy = || Problem::unavailable("the server is busy hashing other passwords", BUSY_RETRY_SECONDS);
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| busy())?;
        let waiting = tokio::time::timeout(WAIT, Arc::clone(&self.cores).acquire_owned());
        let core = waiting.await.map_err(|_| busy())?.map_err(Problem::internal)?;
        // A hash keeps running after its request is canceled. Its task must therefore own the permits.
        let done = tokio::task::spawn_blocking(move || {
            let _permits = (slot, core);
            work()
        });
        done.await.map_err(Problem::internal)
    }
}

/// Rejects a password that is too short or too long.
pub(crate) fn check(password: &str) -> Result<(), Problem> {
    if password.chars().count() < PASSWORD_CHARS_MIN || password.len() > PASSWORD_BYTES_MAX {
        return Err(Problem::unprocessable(format_args!(
            "password: at least {PASSWORD_CHARS_MIN} characters, and at most {PASSWORD_BYTES_MAX} bytes"
        )));
    }
    Ok(())
}

/// Returns the hash to store, in PHC string format.
pub(crate) async fn hash(password: Zeroizing<String>) -> Result<String, Problem> {
    let mut salt = [0_u8; SALT];
    rand::fill(&mut salt)
        .map_err(|_| Problem::internal("the system's random number generator is not available"))?;
    let cost = Cost { memory_kib: MEMORY_KIB, passes: PASSES, lanes: LANES };
    let hash = HASHING.run(move || cost.stretch(&password, &salt)).await?;
    let hash = hash.ok_or_else(|| Problem::internal("argon2id rejects its parameters"))?;
    Ok(format!(
        "$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p={LANES}${}${}",
        B64.encode(salt),
        B64.encode(hash.as_slice())
    ))
}

/// Returns the user with this name and password, if it may sign in. An unknown name, or a user without a password, takes as long as
/// a wrong password.
pub(crate) async fn user(
    access: &AccessControl,
    name: &str,
    password: Zeroizing<String>,
    address: &str,
) -> Result<Identity, Problem> {
    let found = store::Access::of(access.store()).password(name).await?;
    let stored = found.as_ref().map(|(hash, _)| hash.clone());
    let good = HASHING.run(move || verifies(stored.as_deref(), &password)).await?;
    let now = access.clock().now_us();
    let is_active = |one: &Identity| one.enabled && one.expires_at_us.is_none_or(|end| now < end);
    match found {
        Some((_, user)) if good && is_active(&user) => Ok(user),
        Some((_, user)) => {
            audit_failed_login(access.clone(), user, address.to_owned());
            Err(refused())
        }
        None => Err(refused()),
    }
}

/// Returns the error for a failed login, which is the same for every cause.
fn refused() -> Problem {
    Problem::unauthenticated("the name or the password is wrong, or this user has no password or is disabled")
        .hint("`bulla console` creates a one-time link instead; an administrator sets passwords: `bulla user password NAME`")
}

/// Records failed logins of known users in the audit log. A separate task writes the record, so that the response time does not
/// reveal whether the name is known.
fn audit_failed_login(access: AccessControl, user: Identity, address: String) {
    tokio::spawn(async move {
        let _task = telemetry::tasks::guard("refused-sign-in");
        let event = AuditEvent {
            at_us: access.clock().now_us(),
            actor: "system:sign-in".to_owned(),
            action: "session.refuse",
            resource: admin::resource(user.kind, user.id),
            details: json!({ "name": user.name, "address": address, "method": "password" }),
        };
        let written = access.store().write("session_refuse", move |tx| {
            async move { store::audit(tx, vec![event]).await.map(drop) }.boxed()
        });
        if let Err(error) = written.await {
            tracing::warn!(%error, "a rejected sign-in could not be written to the audit log");
        }
    });
}

/// Cost parameters of a hash.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Cost {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

impl Cost {
    fn stretch(self, password: &str, salt: &[u8]) -> Option<Zeroizing<[u8; HASH]>> {
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(HASH)).ok()?;
        let mut hash = Zeroizing::new([0; HASH]);
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        argon.hash_password_into(password.as_bytes(), salt, hash.as_mut_slice()).ok()?;
        Some(hash)
    }
}

/// A parsed stored hash.
struct Stored {
    cost: Cost,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

impl Stored {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('$');
        let head = (parts.next()?, parts.next()?, parts.next()?);
        if head != ("", "argon2id", "v=19") {
            return None;
        }
        let mut numbers = parts.next()?.split(',');
        let mut number = |name: &str| numbers.next()?.strip_prefix(name)?.parse().ok();
        let cost = Cost { memory_kib: number("m=")?, passes: number("t=")?, lanes: number("p=")? };
        let (salt, hash) = (B64.decode(parts.next()?).ok()?, B64.decode(parts.next()?).ok()?);
        Some(Self { cost, salt, hash })
    }
}

/// Returns the hash to compare with. Without a stored hash, returns a hash of the same cost that no password matches, so that the
/// response time reveals nothing.
fn stored_or_dummy(stored: Option<&str>) -> Stored {
    stored.and_then(Stored::parse).unwrap_or_else(|| Stored {
        cost: Cost { memory_kib: MEMORY_KIB, passes: PASSES, lanes: LANES },
        salt: vec![0; SALT],
        hash: Vec::new(),
    })
}

/// Returns whether the password matches the stored hash. Without a stored hash, does the same work and returns false.
fn verifies(stored: Option<&str>, password: &str) -> bool {
    let stored = stored_or_dummy(stored);
    let hash = stored.cost.stretch(password, &stored.salt);
    hash.is_some_and(|hash| hash.as_slice().ct_eq(&stored.hash).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;

    #[tokio::test]
    async fn password_verifies_only_against_its_argon2id_hash() {
        let good = "correct horse battery staple";
        let hash = hash(Zeroizing::new(good.to_owned())).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=65536,t=3,p=1$"), "{hash}");
        assert!(verifies(Some(&hash), good));
        assert!(!verifies(Some(&hash), "correct horse battery stapl"));
        assert!(!verifies(Some("nonsense"), good) && !verifies(None, good) && !verifies(None, ""));
    }

    #[tokio::test]
    async fn unknown_users_cost_as_much_hashing_as_wrong_passwords() {
        let hash = hash(Zeroizing::new("correct horse battery staple".to_owned())).await.unwrap();
        let known = stored_or_dummy(Some(&hash));
        for other in [None, Some("nonsense"), Some("$argon2id$v=19$m=8,t=1$salt$hash")] {
            let unknown = stored_or_dummy(other);
            assert_eq!((unknown.cost, unknown.salt.len()), (known.cost, known.salt.len()), "{other:?}");
        }
    }

    #[tokio::test]
    async fn concurrent_and_queued_password_hashes_are_limited() {
        let queue = Arc::new(HashQueue::new(1, 1));
        let (release, released) = std::sync::mpsc::channel::<()>();
        let run = |queue: &Arc<HashQueue>, work: Box<dyn FnOnce() + Send>| {
            let queue = Arc::clone(queue);
            tokio::spawn(async move { queue.run(work).await })
        };
        let first = run(&queue, Box::new(move || released.recv().unwrap()));
        testbed::until("the first is at work", || queue.cores.available_permits() == 0).await;
        let second = run(&queue, Box::new(|| {}));
        testbed::until("the second waits", || queue.slots.available_permits() == 0).await;
        let refused = queue.run(|| ()).await.unwrap_err();
        assert_eq!((refused.kind(), refused.status().as_u16()), ("unavailable", 503));
        assert_eq!(refused.into_response().headers()["retry-after"], "5");
        release.send(()).unwrap();
        first.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
        queue.run(|| ()).await.unwrap();
    }

    #[test]
    fn password_length_limits_are_enforced() {
        assert!(check("twelve chars").is_ok() && check(&"x".repeat(PASSWORD_BYTES_MAX)).is_ok());
        assert!(check("eleven char").is_err() && check(&"x".repeat(PASSWORD_BYTES_MAX + 1)).is_err());
    }
}
