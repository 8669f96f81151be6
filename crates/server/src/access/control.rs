//! Lookup of credentials, cached for a few seconds. A change of access by this process invalidates the cache immediately.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::access::Grant;
use authority::VerifiedClient;
use authority::principal::{Principal, is_person};
use authority::teams::TeamDirectory;
use flight::{Cache, Failed, Fresh};
use futures_util::FutureExt;
use parking_lot::Mutex;
use shared::Shared;
use store::{Clock, Identity, IdentityKind, Role, Session, Store};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use x509::Fingerprint;

use crate::access::grant::{self, RoleTable, UnreadableAccess};
use crate::access::proof::CallerSession;
use crate::access::{Caller, CallerKind, Granted, Permission, Permissions, Scope};
use crate::problem::Problem;

/// Lifetime of a cached credential. A credential that another process revokes stops working within this time.
pub const CACHE_LIFETIME: Duration = Duration::from_secs(5);

/// Time for which an unknown credential is cached as unknown.
const UNKNOWN_CACHE_LIFETIME: Duration = Duration::from_secs(2);

/// Maximum credentials in the cache, a few hundred bytes each.
const CACHED_CREDENTIALS_MAX: u64 = 8_192;

/// Minimum age of a stored "last used" time before it is updated, µs: an hour.
const USED_COARSENESS_US: i64 = 3_600_000_000;

/// Maximum "last used" times that wait to be written. Further times are dropped: a later use of the credential records its time
/// again. Also the maximum of principals in `stored`.
const PENDING_USES_MAX: usize = 16_384;

/// Time for which signatures of approvers are stored, µs: as long as their votes. The audit log also contains the signatures.
const SIGNATURE_RETENTION_US: i64 = 400 * 86_400 * 1_000_000;

/// Interval between writes of "last used" times to the database.
const WRITE_EVERY: Duration = Duration::from_secs(60);

/// `Retry-After` in seconds when the ownership of teams cannot be read.
const TEAMS_RETRY_SECONDS: u64 = 1;

/// Limits after which a browser session ends.
#[derive(Clone, Copy, Debug)]
pub struct SessionOptions {
    /// Maximum time without a request.
    pub idle: Duration,
    /// Maximum time in total, even with requests.
    pub absolute: Duration,
}

impl Default for SessionOptions {
    /// Returns one hour of idle time and twelve hours in total: one login per working day.
    fn default() -> Self {
        Self { idle: Duration::from_secs(3_600), absolute: Duration::from_secs(12 * 3_600) }
    }
}

/// A cached credential: its principal, its grants and its expiry.
#[derive(Clone)]
pub(crate) struct CachedCredential {
    pub(crate) principal: Principal,
    pub(crate) kind: CallerKind,
    pub(crate) id: Uuid,
    grants: Vec<Grant>,
    /// The resolved grants. `None` if a grant has a custom role: then the grants are resolved at each request, because custom roles
    /// can change.
    granted: Option<Vec<Granted>>,
    /// Expiry of the credential, µs since 1970-01-01 UTC.
    until_us: i64,
    /// The session, if the credential is a session cookie.
    session: Option<Arc<CallerSession>>,
}

type Credentials = Cache<(u64, [u8; 32]), Arc<CachedCredential>, Problem>;

/// The shared state of authentication and authorization. Cheap to clone.
#[derive(Clone)]
pub struct AccessControl(Shared<AccessParts>);

struct AccessParts {
    store: Store,
    clock: Clock,
    sessions: SessionOptions,
    credentials: Credentials,
    roles: Cache<u64, Arc<RoleTable>, Problem>,
    teams: TeamDirectory,
    /// Generation of the cache. It is part of every cache key, so that an increment invalidates all entries.
    generation: AtomicU64,
    used: Mutex<HashMap<Uuid, i64>>,
    seen: Mutex<HashMap<[u8; 32], i64>>,
    /// Principals whose identifiers this process has stored.
    stored: Mutex<HashSet<Principal>>,
}

impl AccessControl {
    /// Creates the access control for the identities, sessions and roles in this database.
    #[must_use]
    pub fn new(store: Store, clock: Clock, sessions: SessionOptions) -> Self {
        let teams = TeamDirectory::new(store.clone());
        Self::with_teams(store, clock, sessions, teams)
    }

    /// Like [`Self::new`], with the directory from which the ownership of teams is read.
    #[must_use]
    pub fn with_teams(store: Store, clock: Clock, sessions: SessionOptions, teams: TeamDirectory) -> Self {
        Self(Shared::new(AccessParts {
            store,
            clock,
            sessions,
            credentials: Cache::with_entries_max(CACHED_CREDENTIALS_MAX),
            roles: Cache::with_entries_max(2),
            teams,
            generation: AtomicU64::new(0),
            used: Mutex::default(),
            seen: Mutex::default(),
            stored: Mutex::default(),
        }))
    }

    /// Returns the limits after which sessions end.
    #[must_use]
    pub fn session_options(&self) -> SessionOptions {
        self.0.sessions
    }

    /// Returns the database of identities, sessions and roles.
    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// Clears the cache of credentials and roles. Called after any change of access, so that it is effective immediately in this
    /// process.
    pub fn forget(&self) {
        self.0.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the caller whose API token has this hash.
    pub(crate) async fn token(&self, hash: [u8; 32]) -> Result<Caller, Problem> {
        let inner = Shared::clone(&self.0);
        self.admit(hash, move || async move {
            let found =
                store::Access::of(&inner.store).identities_by_keys(&[hash]).await.map_err(uncached)?;
            let identity = found.into_iter().find(|identity| identity.kind == IdentityKind::Token);
            let identity = identity.ok_or_else(|| unknown("this token is unknown or was deleted"))?;
            let credential = inner.cache_entry(&identity, Vec::new(), i64::MAX)?;
            inner.store_principal(&credential.value.principal).await;
            Ok(credential)
        })
        .await
    }

    /// Returns the caller whose session cookie has this hash.
    pub(crate) async fn session(&self, hash: [u8; 32]) -> Result<Caller, Problem> {
        let inner = Shared::clone(&self.0);
        self.admit(hash, move || async move {
            let found = store::Access::of(&inner.store).session(hash).await.map_err(uncached)?;
            let (session, identity) = found.ok_or_else(|| unknown("this session has ended"))?;
            let until_us = inner.session_expiry(&session).ok_or_else(|| unknown("this session has ended"))?;
            inner.note_seen(&session);
            let of_login = grant::session_grants(&session).map_err(unreadable)?;
            let mut credential = inner.cache_entry(&identity, of_login, until_us)?;
            inner.store_principal(&credential.value.principal).await;
            let session = Some(Arc::new(CallerSession::of(&session)));
            credential.value =
                Arc::new(CachedCredential { session, ..CachedCredential::clone(&credential.value) });
            Ok(credential)
        })
        .await
    }

    /// Returns whether a session that reads a stream may continue: the session has not ended, and has the permission in all
    /// scopes. Unlike a request, this check does not extend the session.
    pub(crate) async fn is_session_permitted(
        &self,
        hash: [u8; 32],
        permission: Permission,
    ) -> Result<bool, Problem> {
        let found = store::Access::of(&self.0.store).session(hash).await?;
        let Some((session, identity)) = found else { return Ok(false) };
        let expired = identity.expires_at_us.is_some_and(|end| end <= self.0.clock.now_us());
        if expired || !identity.enabled || self.0.session_expiry(&session).is_none() {
            return Ok(false);
        }
        let mut grants = grant::stored(&identity)?;
        grants.extend(grant::session_grants(&session)?);
        let roles = self.roles().await?;
        let mut granted = grants.iter().map(|grant| grant::resolved(grant, &roles));
        Ok(granted.any(|one| one.scope == Scope::Any && one.permissions.has(permission)))
    }

    /// Returns the caller with this client certificate, found by the hash of the certificate or by its lookup keys; the first
    /// match is used. The revocation status must already be checked.
    pub(crate) async fn certificate(
        &self,
        hash: [u8; 32],
        keys: Vec<[u8; 32]>,
        client: VerifiedClient,
    ) -> Result<Caller, Problem> {
        let inner = Shared::clone(&self.0);
        self.admit(hash, move || async move {
            let mut found =
                store::Access::of(&inner.store).identities_by_keys(&keys).await.map_err(uncached)?;
            found.retain(|identity| identity.kind == IdentityKind::Certificate);
            let first = keys.iter().find_map(|key| found.iter().find(|identity| identity.key_hash == *key));
            let identity =
                first.ok_or_else(|| unknown("this client certificate is not mapped to an identity"))?;
            let not_after_us = client.certificate().not_after.0.saturating_add(1).saturating_mul(1_000_000);
            let mut credential = inner.cache_entry(identity, Vec::new(), not_after_us)?;
            let with = CachedCredential::clone(&credential.value);
            let principal = with.principal.with_certificate(client.certificate());
            inner.store_principal(&principal).await;
            credential.value =
                Arc::new(CachedCredential { principal, ..CachedCredential::clone(&credential.value) });
            Ok(credential)
        })
        .await
    }

    async fn admit<F, W>(&self, hash: [u8; 32], lookup: F) -> Result<Caller, Problem>
    where
        F: FnOnce() -> W + Send + 'static,
        W: Future<Output = Result<Fresh<Arc<CachedCredential>>, Failed<Problem>>> + Send + 'static,
    {
        let generation = self.0.generation.load(Ordering::SeqCst);
        let credential = self.0.credentials.fetch(&(generation, hash), lookup).await?;
        if credential.until_us <= self.0.clock.now_us() {
            return Err(Problem::unauthenticated("this credential has expired"));
        }
        let granted = match &credential.granted {
            Some(granted) => granted.clone(),
            None => {
                let roles = self.roles().await?;
                credential.grants.iter().map(|grant| grant::resolved(grant, &roles)).collect()
            }
        };
        let roles = credential.grants.iter().map(|grant| grant.role.clone()).collect();
        let caller =
            Caller::from_principal(credential.principal.clone(), credential.kind, credential.id, granted);
        let ownership = self.0.teams.ownership().await.map_err(|error| {
            tracing::warn!(%error, "the teams of a caller cannot be read");
            Problem::unavailable("the database is busy or does not answer", TEAMS_RETRY_SECONDS)
        })?;
        Ok(caller.with_roles(roles).with_ownership(ownership).with_session(credential.session.clone()))
    }

    /// Returns the permissions of custom roles.
    pub(crate) async fn roles(&self) -> Result<Arc<RoleTable>, Problem> {
        let inner = Shared::clone(&self.0);
        let generation = self.0.generation.load(Ordering::SeqCst);
        self.0
            .roles
            .fetch(&generation, move || async move {
                let stored = store::Access::of(&inner.store).roles().await.map_err(uncached)?;
                let table = stored.into_iter().map(role_entry).collect();
                Ok(Fresh { value: Arc::new(table), lifetime: CACHE_LIFETIME })
            })
            .await
    }

    /// Maintains the access data in the background, every minute until `stop`, and once more after `stop`:
    ///
    /// - writes "last used" times of credentials and sessions
    /// - deletes expired sessions, sign-in links, ceremonies of security keys, signatures of approvers and idempotency keys
    ///
    /// Only the process that runs a server's background tasks calls this function.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let _task = telemetry::tasks::guard("access-upkeep");
        loop {
            let stopped = tokio::select! {
                () = stop.cancelled() => true,
                () = tokio::time::sleep(WRITE_EVERY) => false,
            };
            if let Err(error) = self.upkeep().await {
                tracing::warn!(%error, "the last use of identities and sessions could not be stored");
            }
            if stopped {
                return;
            }
        }
    }

    /// Runs one round of the maintenance that `AccessControl::run` repeats.
    ///
    /// # Errors
    /// Errors of the database. "Last used" times of this round may then be lost; the next use of a credential records its time
    /// again.
    pub async fn upkeep(&self) -> Result<(), store::StoreError> {
        let used: Vec<_> = std::mem::take(&mut *self.0.used.lock()).into_iter().collect();
        let seen: Vec<_> = std::mem::take(&mut *self.0.seen.lock()).into_iter().collect();
        if !used.is_empty() {
            store::Access::of(&self.0.store).identities_used(used).await?;
        }
        if !seen.is_empty() {
            store::Access::of(&self.0.store).sessions_seen(seen).await?;
        }
        let now = self.0.clock.now_us();
        store::Access::of(&self.0.store).expire_sessions(now, now - micros(self.0.sessions.idle)).await?;
        store::Access::of(&self.0.store).expire_sign_in_links(now).await?;
        store::Access::of(&self.0.store).expire_key_ceremonies(now).await?;
        store::Access::of(&self.0.store).trim_approval_signatures(now - SIGNATURE_RETENTION_US).await?;
        store::Access::of(&self.0.store).expire_idempotent(now).await.map(drop)
    }
}

impl AccessParts {
    /// Converts an identity to a cache entry. Rejects a disabled identity.
    fn cache_entry(
        &self,
        identity: &Identity,
        more: Vec<Grant>,
        until_us: i64,
    ) -> Result<Fresh<Arc<CachedCredential>>, Failed<Problem>> {
        if !identity.enabled {
            return Err(unknown("this identity is disabled"));
        }
        let mut grants = grant::stored(identity).map_err(unreadable)?;
        grants.extend(more);
        self.note_used(identity);
        let built_in = grants.iter().all(|grant| crate::access::built_in_role(&grant.role).is_some());
        let granted =
            built_in.then(|| grants.iter().map(|grant| grant::resolved(grant, &RoleTable::new())).collect());
        let kind = match identity.kind {
            IdentityKind::Token => CallerKind::Token,
            IdentityKind::User => CallerKind::User,
            IdentityKind::Certificate => CallerKind::Certificate,
        };
        let credential = CachedCredential {
            principal: identity_principal(identity),
            kind,
            id: identity.id,
            grants,
            granted,
            until_us: until_us.min(identity.expires_at_us.unwrap_or(i64::MAX)),
            session: None,
        };
        Ok(Fresh { value: Arc::new(credential), lifetime: CACHE_LIFETIME })
    }

    /// Stores the identifiers of the principal, once in this process. Approvals that the principal requested need them, even long
    /// after the identity is deleted. After a failure, the next lookup tries again.
    async fn store_principal(&self, principal: &Principal) {
        if self.stored.lock().contains(principal) {
            return;
        }
        let recorded = principal.clone();
        let written = self.store.write("principal_note", move |tx| {
            async move { authority::tables::store_principal_marks(tx, &recorded).await }.boxed()
        });
        if let Err(error) = written.await {
            tracing::warn!(%error, actor = principal.actor(), "the attributes of a principal could not be stored");
            return;
        }
        let mut stored = self.stored.lock();
        if stored.len() >= PENDING_USES_MAX {
            stored.clear();
        }
        stored.insert(principal.clone());
    }

    /// Returns the end of a session; `None` when it has ended.
    fn session_expiry(&self, session: &Session) -> Option<i64> {
        let now = self.clock.now_us();
        let recorded = self.seen.lock().get(&session.token_hash).copied();
        let seen = session.last_seen_at_us.max(recorded.unwrap_or(i64::MIN));
        let idle_until = seen.saturating_add(micros(self.sessions.idle));
        (now < session.expires_at_us && now < idle_until).then_some(session.expires_at_us)
    }

    fn note_used(&self, identity: &Identity) {
        let now = self.clock.now_us();
        if identity.last_used_at_us.is_none_or(|last| now - last >= USED_COARSENESS_US) {
            let mut used = self.used.lock();
            if used.len() < PENDING_USES_MAX {
                used.insert(identity.id, now);
            }
        }
    }

    /// Records the use of a session, at most once per tenth of the idle limit. This interval needs few writes, and is short enough
    /// that a session in use does not time out.
    fn note_seen(&self, session: &Session) {
        let now = self.clock.now_us();
        if now - session.last_seen_at_us >= micros(self.sessions.idle) / 10 {
            let mut seen = self.seen.lock();
            if seen.len() < PENDING_USES_MAX {
                seen.insert(session.token_hash, now);
            }
        }
    }
}

impl fmt::Debug for AccessControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessControl")
            .field("remembered", &self.0.credentials.counts())
            .finish_non_exhaustive()
    }
}

/// Returns the principal of an identity. The principal of a token is the user or client certificate that created the token. An
/// email address that an administrator entered counts as verified; an address from a login does not.
pub(crate) fn identity_principal(identity: &Identity) -> Principal {
    let actor = format!("{}:{}", identity.kind, identity.name);
    let principal = Principal::from_actor(&actor).with(format!("identity:{}", identity.id));
    // A user is identified by issuer and subject, even if the account is removed and created again.
    let principal = match identity.kind {
        IdentityKind::User => principal.with(format!("oidc:{}", Fingerprint::from_bytes(identity.key_hash))),
        IdentityKind::Token | IdentityKind::Certificate => principal,
    };
    match identity.kind {
        IdentityKind::Token if is_person(&identity.created_by) => {
            principal.with(identity.created_by.as_str())
        }
        IdentityKind::Token => principal,
        IdentityKind::Certificate => principal.with(identity.label.as_str()),
        IdentityKind::User => match &identity.email {
            Some(email) if !identity.created_by.starts_with("system:") => {
                principal.with(format!("email:{}", email.to_ascii_lowercase()))
            }
            _ => principal,
        },
    }
}

/// Returns a role with its permissions; `None` when this version cannot parse the permissions. The error is logged.
fn role_entry(role: Role) -> (String, Option<Permissions>) {
    let permissions = grant::permissions(&role)
        .inspect_err(|error| tracing::error!(%error, "the permissions of a role cannot be read: the role grants nothing"))
        .ok()
        .map(|permissions| Permissions::of(&permissions));
    (role.name, permissions)
}

pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Returns a 401 error for a credential that is unknown or can no longer be used. `why` is the detail. The error is cached for
/// [`UNKNOWN_CACHE_LIFETIME`].
pub(crate) fn unknown(why: &str) -> Failed<Problem> {
    Failed { error: Problem::unauthenticated(why), lifetime: UNKNOWN_CACHE_LIFETIME }
}

/// Returns the error for an identity whose stored access cannot be parsed. The error is cached for [`UNKNOWN_CACHE_LIFETIME`].
fn unreadable(error: UnreadableAccess) -> Failed<Problem> {
    Failed { error: error.into(), lifetime: UNKNOWN_CACHE_LIFETIME }
}

/// Wraps a database error, so that the next request reads the database again instead of a cached error.
pub(crate) fn uncached(error: store::StoreError) -> Failed<Problem> {
    Failed { error: error.into(), lifetime: Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(kind: IdentityKind, name: &str, created_by: &str) -> Identity {
        Identity {
            id: Uuid::now_v7(),
            kind,
            name: name.to_owned(),
            key_hash: [0; 32],
            label: format!("label of {name}"),
            email: None,
            grants: "[]".to_owned(),
            enabled: true,
            revision: 1,
            created_at_us: 0,
            created_by: created_by.to_owned(),
            expires_at_us: None,
            last_used_at_us: None,
        }
    }

    #[test]
    fn token_is_the_person_who_created_it() {
        let of = |kind, name: &str, created_by: &str| identity_principal(&identity(kind, name, created_by));
        for (kind, creator) in
            [(IdentityKind::User, "user:ann"), (IdentityKind::Certificate, "certificate:ann")]
        {
            let person = of(kind, "ann", "token:admin");
            assert!(of(IdentityKind::Token, "a", creator).is_same_person(&person), "{creator}");
            assert!(!of(IdentityKind::Token, "b", "token:admin").is_same_person(&person), "{creator}");
        }
    }
}
