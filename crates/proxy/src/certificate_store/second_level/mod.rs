//! The second level behind the memory cache: a database that several proxies share, or a file on this machine.
//!
//! The memory cache requests missing leaves from the second level. The result is the leaf, a lease to mint it, or "another proxy
//! mints it"; in the last case the request is repeated. A proxy that fails loses its lease when the lease expires. [`seals`]
//! contains the encryption, crate `store` the database.
//!
//! Requests to the database have a timeout. After a failure the level counts as unavailable: leaves are minted locally or refused,
//! as configured in [`OutagePolicy`], and [`SecondLevel::keep`] probes until the database responds.

mod backend;
mod lazy_backend;
mod seals;

pub use backend::Backend;
pub use lazy_backend::{Opened, Opening};
pub use seals::StoredLeafError;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use flight::BoundedMap;
use http_relay::clock;
use keys::Keyring;
use store::StoreError;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use x509::UnixTime;

use self::lazy_backend::LazyBackend;
use super::{FetchError, KeyRecipients, LeafId};
use crate::mint::{LEAF_KEY_LIFE_MAX, Leaf, LeafKey, MintError, SIGN_TIMEOUT, VALIDITY_MAX};
use crate::tables::{LeafLeaseRequest, LeafLookup, NewLeaf, OWN_KEY_ENDS_AFTER_US, TIDIED_MAX};

/// Default timeout of a request to the backend.
pub const TRIP_TIMEOUT: Duration = Duration::from_secs(1);
/// Default duration of a lease to mint a leaf, for the timeout [`TRIP_TIMEOUT`].
pub const LEASE: Duration = lease_of(TRIP_TIMEOUT);

/// Returns the duration of a lease for requests with the timeout `round_trip`. It covers the CA's signature and three requests: to get
/// the lease, to store the key, and to store the leaf.
#[must_use]
pub const fn lease_of(round_trip: Duration) -> Duration {
    SIGN_TIMEOUT.saturating_add(round_trip.saturating_mul(3))
}
/// Default maximum of stored leaves, about 1.5 KiB each.
pub const LEAVES_MAX: u64 = 100_000;
/// First pause between two lookups of a proxy that waits for another proxy's leaf. The pause doubles up to [`POLL_LAST`].
const POLL_FIRST: Duration = Duration::from_millis(5);
/// Maximum pause between two lookups of a proxy that waits for another proxy's leaf.
const POLL_LAST: Duration = Duration::from_millis(100);
/// Interval of probes while the storage is unavailable.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// Interval at which one of the proxies deletes expired leaves.
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// Timeout of one batch of deletions.
const TIDY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum batches in a row; the rest is deleted the next time.
const TIDY_BATCHES_MAX: usize = 100;
/// Maximum decrypted leaf keys in memory, of this proxy and of others. By default, a proxy generates one shared key of each type
/// per hour.
const KEYS_OPEN_MAX: u64 = 1_024;
/// Time after which a key is stored again with a later expiry.
const KEY_STORE_INTERVAL: Duration = Duration::from_secs(3_600);
/// Time for which a key is stored: the maximum validity of a leaf, the time in which new leaves use the key, and [`KEY_STORE_INTERVAL`].
const KEY_STORED_FOR: Duration =
    VALIDITY_MAX.saturating_add(LEAF_KEY_LIFE_MAX).saturating_add(KEY_STORE_INTERVAL);
/// Maximum attempts to store a leaf. An attempt fails if the lease was lost. After the last attempt, this proxy uses the leaf
/// without sharing it.
const PUTS_MAX: usize = 2;

/// Behaviour for names that are not in memory while the backend is unavailable.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OutagePolicy {
    /// Leaves are minted locally; other proxies may present other leaves.
    #[default]
    Mint,
    /// Handshakes for names that are not in memory fail.
    Refuse,
}

/// Options of the second level: timeouts, size, and behaviour while the backend is unavailable.
#[derive(Clone, Copy, Debug)]
pub struct SecondLevelOptions {
    /// Behaviour while the storage is unavailable.
    pub when_away: OutagePolicy,
    /// Timeout of a request to the backend.
    pub trip_timeout: Duration,
    /// Duration of a lease to mint a leaf. After it, another proxy may mint the leaf.
    pub lease: Duration,
    /// Maximum stored leaves; the oldest are deleted first.
    pub leaves_max: u64,
    /// Whether other machines share the backend.
    pub is_shared: bool,
}

impl Default for SecondLevelOptions {
    fn default() -> Self {
        Self {
            when_away: OutagePolicy::Mint,
            trip_timeout: TRIP_TIMEOUT,
            lease: LEASE,
            leaves_max: LEAVES_MAX,
            is_shared: true,
        }
    }
}

/// Counters of the second level since its creation.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SecondLevelCounts {
    /// Leaves found in the backend.
    pub found: u64,
    /// Requests for leaves that another proxy was minting.
    pub awaited: u64,
    /// Leaves that could not be decrypted, and were minted again.
    pub undecryptable: u64,
    /// Requests to the backend that failed or timed out.
    pub failures: u64,
    /// Leaves minted or refused because the backend was unavailable, or another proxy took too long.
    pub without: u64,
    /// Whether the backend is currently unavailable.
    pub unavailable: bool,
}

/// The second level of the certificate store, behind the memory cache. Clones share it.
#[derive(Clone)]
pub struct SecondLevel(Arc<LevelState>);

struct LevelState {
    backend: LazyBackend,
    options: SecondLevelOptions,
    /// ID of this process in leases.
    holder: Uuid,
    /// Decrypted keys of leaves, by ID.
    open: BoundedMap<String, LeafKey>,
    /// Expiry in µs of the keys in the backend, by ID.
    stored_keys: BoundedMap<String, i64>,
    unavailable: AtomicBool,
    /// Notified when the storage becomes unavailable.
    became_unavailable: Notify,
    /// Whether the last found leaf could be decrypted.
    can_decrypt: AtomicBool,
    found: AtomicU64,
    awaited: AtomicU64,
    undecryptable: AtomicU64,
    failures: AtomicU64,
    without: AtomicU64,
}

/// A leaf that this proxy has minted, or has found in the backend.
pub(super) enum Obtained {
    Minted(Leaf),
    Found(Leaf),
}

/// Result of waiting for a leaf: another proxy minted it, or this proxy has the lease to mint it.
enum Turn {
    Found(Leaf),
    Ours,
}

/// A lease of this process to mint a leaf. Dropping the value before the minting has ended releases the lease.
struct Lease {
    level: Arc<LevelState>,
    id: String,
    is_done: bool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_done || self.level.unavailable.load(Relaxed) {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (level, id) = (Arc::clone(&self.level), std::mem::take(&mut self.id));
            // The task ends by itself: the request has a timeout.
            runtime.spawn(async move {
                let _live = telemetry::tasks::guard("leaf-lease-release");
                level.release(&id).await;
            });
        }
    }
}

struct LeafRequest {
    /// Digest of the leaf's identity, 64 hexadecimal digits.
    id: String,
    /// Whether another process gets the leaf's key.
    is_exportable: bool,
    now_us: i64,
    began: Instant,
}

impl LeafRequest {
    /// Returns the caller's time, advanced by the time since the request began.
    fn now_us(&self) -> i64 {
        self.now_us.saturating_add(micros(self.began.elapsed()))
    }
}

impl fmt::Debug for SecondLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecondLevel").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl SecondLevel {
    /// Stores leaves and keys in `backend`, sealed under `ring`. All proxies of the backend need the same master keys.
    #[must_use]
    pub fn new(backend: impl Backend, ring: Arc<Keyring>, options: SecondLevelOptions) -> Self {
        Self::at(LazyBackend::of(Opened::new(backend, ring)), false, options)
    }

    /// Creates a level whose backend is not open yet: [`Self::keep`] tries `opening` every second until it succeeds.
    #[must_use]
    pub fn open_when_available(opening: Opening, options: SecondLevelOptions) -> Self {
        Self::at(LazyBackend::awaited(opening), true, options)
    }

    fn at(backend: LazyBackend, unavailable: bool, options: SecondLevelOptions) -> Self {
        Self(Arc::new(LevelState {
            backend,
            options,
            holder: Uuid::now_v7(),
            open: BoundedMap::new(KEYS_OPEN_MAX),
            stored_keys: BoundedMap::builder(KEYS_OPEN_MAX).time_to_live(KEY_STORE_INTERVAL).build(),
            unavailable: AtomicBool::new(unavailable),
            became_unavailable: Notify::new(),
            can_decrypt: AtomicBool::new(true),
            found: AtomicU64::default(),
            awaited: AtomicU64::default(),
            undecryptable: AtomicU64::default(),
            failures: AtomicU64::default(),
            without: AtomicU64::default(),
        }))
    }

    /// Returns the counters since this level was created, and whether the backend is unavailable now.
    #[must_use]
    pub fn counts(&self) -> SecondLevelCounts {
        let level = &self.0;
        SecondLevelCounts {
            found: level.found.load(Relaxed),
            awaited: level.awaited.load(Relaxed),
            undecryptable: level.undecryptable.load(Relaxed),
            failures: level.failures.load(Relaxed),
            without: level.without.load(Relaxed),
            unavailable: level.unavailable.load(Relaxed),
        }
    }

    /// Returns whether the backend may store this leaf. A shared backend never stores leaves whose key only this machine may get.
    pub(super) fn keeps(&self, id: &LeafId) -> bool {
        !(self.0.options.is_shared && id.key_recipients == KeyRecipients::ThisMachine)
    }

    /// Finds or mints a leaf that is valid until `ends_from` at least.
    pub(super) async fn fetch(
        &self,
        id: &LeafId,
        now: UnixTime,
        ends_from: UnixTime,
        minting: impl Future<Output = Result<Leaf, MintError>>,
    ) -> Result<Obtained, FetchError> {
        let is_exportable = id.key_recipients != KeyRecipients::Nobody;
        let (now_us, began) = (micros_of(now), Instant::now());
        let request = LeafRequest { id: seals::digest_of(id), is_exportable, now_us, began };
        match self.0.turn(&request, micros_of(ends_from)).await {
            Some(Turn::Found(leaf)) => Ok(Obtained::Found(leaf)),
            Some(Turn::Ours) => {
                let mut lease = Lease { level: Arc::clone(&self.0), id: request.id.clone(), is_done: false };
                let made = self.0.mint(&request, micros_of(ends_from), minting).await;
                lease.is_done = true;
                made
            }
            None => self.0.without(minting).await,
        }
    }

    /// Deletes expired leaves, and probes the backend while it is unavailable, until `stop`.
    pub async fn keep(self, stop: CancellationToken) {
        let level = &self.0;
        let probing = async {
            loop {
                if level.unavailable.load(Relaxed) {
                    tokio::time::sleep(PROBE_EVERY).await;
                    level.probe().await;
                } else {
                    level.became_unavailable.notified().await;
                }
            }
        };
        // In a separate future, because deletion may take long.
        let tidying = async {
            loop {
                if !level.unavailable.load(Relaxed) {
                    level.tidy().await;
                }
                tokio::time::sleep(TIDY_EVERY).await;
            }
        };
        stop.run_until_cancelled(async { tokio::join!(probing, tidying) }).await;
    }
}

impl LevelState {
    /// Waits for the leaf or for the lease to mint it. Returns `None` if the backend is unavailable or another proxy takes too
    /// long.
    async fn turn(&self, request: &LeafRequest, mut ends_from_us: i64) -> Option<Turn> {
        let opened = self.backend.get()?;
        let began = Instant::now();
        let max_wait = self.options.lease + self.options.trip_timeout;
        let mut pause = POLL_FIRST;
        let mut waits = false;
        while !self.unavailable.load(Relaxed) {
            let now_us = request.now_us();
            let lease_request = LeafLeaseRequest {
                id: &request.id,
                ends_from_us,
                holder: self.holder,
                now_us,
                until_us: now_us.saturating_add(micros(self.options.lease)),
            };
            match self.round_trip("look", opened.backend.lookup(lease_request)).await? {
                LeafLookup::Leased => return Some(Turn::Ours),
                LeafLookup::Stored(stored) => match opened.seals.open(&request.id, &stored, &self.open) {
                    Ok(mut leaf) => {
                        leaf.key = leaf.key.with_export_permission(request.is_exportable);
                        self.can_decrypt.store(true, Relaxed);
                        self.found.fetch_add(1, Relaxed);
                        return Some(Turn::Found(leaf));
                    }
                    Err(why) => {
                        self.log_unreadable_leaf(&request.id, &why);
                        // Request a leaf that expires later than the unreadable one.
                        ends_from_us = stored.ends_at_us.saturating_add(1);
                    }
                },
                LeafLookup::Awaited => {
                    if !std::mem::replace(&mut waits, true) {
                        self.awaited.fetch_add(1, Relaxed);
                    }
                    if began.elapsed() >= max_wait {
                        return None;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(POLL_LAST);
                }
            }
        }
        None
    }

    /// Mints and stores the leaf, with the lease. If the lease was lost during the minting, uses the leaf of another proxy.
    async fn mint(
        &self,
        request: &LeafRequest,
        ends_from_us: i64,
        minting: impl Future<Output = Result<Leaf, MintError>>,
    ) -> Result<Obtained, FetchError> {
        let leaf = match minting.await {
            Ok(leaf) => leaf,
            Err(error) => {
                self.release(&request.id).await;
                return Err(error.into());
            }
        };
        for _ in 0..PUTS_MAX {
            // If the backend is unavailable, the client still gets the leaf.
            if self.put(request, &leaf).await != Some(false) {
                break;
            }
            // The lease may be lost because rows were deleted, perhaps also rows of keys: store all keys again.
            self.stored_keys.invalidate_all();
            match self.turn(request, ends_from_us).await {
                Some(Turn::Found(theirs)) => return Ok(Obtained::Found(theirs)),
                Some(Turn::Ours) => {}
                None => break,
            }
        }
        Ok(Obtained::Minted(leaf))
    }

    /// Stores the leaf. Returns whether it was stored; `None` if the backend is unavailable.
    async fn put(&self, request: &LeafRequest, leaf: &Leaf) -> Option<bool> {
        let opened = self.backend.get()?;
        let key_id = seals::key_id_of(&leaf.key);
        let now_us = request.now_us();
        let with_leaves = leaf.key.expires_with_leaves();
        let ends_at_us = match with_leaves {
            true => micros_of(leaf.not_after).saturating_add(OWN_KEY_ENDS_AFTER_US),
            false => now_us.saturating_add(micros(KEY_STORED_FOR)),
        };
        if self.stored_keys.get(&key_id).is_none_or(|stored_keys| with_leaves && stored_keys < ends_at_us) {
            let sealed = opened.seals.seal_key(&key_id, &leaf.key);
            self.round_trip("put the key", opened.backend.put_key(&key_id, &sealed, ends_at_us)).await?;
            // The key of a single leaf is never looked up again: the leaf in memory contains it.
            if !leaf.key.is_single_leaf_key() {
                self.open.insert(key_id.clone(), leaf.key.clone());
                self.stored_keys.insert(key_id.clone(), ends_at_us);
            }
        }
        let sealed = opened.seals.seal_leaf(&request.id, leaf);
        let new = NewLeaf {
            id: &request.id,
            holder: self.holder,
            sealed: &sealed,
            key_id: &key_id,
            ends_at_us: micros_of(leaf.not_after),
            now_us,
        };
        self.round_trip("put", opened.backend.put(new)).await
    }

    async fn release(&self, id: &str) {
        if let Some(opened) = self.backend.get() {
            self.round_trip("release", opened.backend.release(id, self.holder)).await;
        }
    }

    async fn without(
        &self,
        minting: impl Future<Output = Result<Leaf, MintError>>,
    ) -> Result<Obtained, FetchError> {
        self.without.fetch_add(1, Relaxed);
        match self.options.when_away {
            OutagePolicy::Mint => Ok(Obtained::Minted(minting.await?)),
            OutagePolicy::Refuse if self.unavailable.load(Relaxed) => Err(FetchError::StoreUnavailable),
            OutagePolicy::Refuse => Err(FetchError::Awaited),
        }
    }

    /// Sends a request to the backend with a timeout. A failure marks the backend as unavailable.
    async fn round_trip<T>(
        &self,
        what: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Option<T> {
        let limit = self.options.trip_timeout;
        let why = match tokio::time::timeout(limit, call).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} ms", limit.as_millis()),
        };
        self.failures.fetch_add(1, Relaxed);
        if self.unavailable.swap(true, Relaxed) {
            tracing::debug!(what, why, "the certificate store does not answer");
        } else {
            let when_away = self.options.when_away;
            tracing::error!(what, why, ?when_away, "the certificate store is unavailable; using memory only");
            self.became_unavailable.notify_one();
        }
        None
    }

    async fn probe(&self) {
        let is_back = match self.backend.get() {
            // Probes with a write that changes no row, because a read-only server is not usable.
            Some(opened) => self.round_trip("probe", opened.backend.release("", self.holder)).await.is_some(),
            None => match self.backend.open().await {
                Ok(()) => true,
                Err(()) => {
                    self.failures.fetch_add(1, Relaxed);
                    false
                }
            },
        };
        if is_back {
            self.unavailable.store(false, Relaxed);
            tracing::info!("the certificate store is available again");
        }
    }

    async fn tidy(&self) {
        let Some(opened) = self.backend.get() else { return };
        for _ in 0..TIDY_BATCHES_MAX {
            let now_us = micros_of(clock::now());
            let tidying = opened.backend.tidy(self.holder, now_us, TIDY_EVERY, self.options.leaves_max);
            // Slow deletion does not mean that the backend is unavailable.
            match tokio::time::timeout(TIDY_TIMEOUT, tidying).await {
                Ok(Ok(tidied)) => {
                    if tidied.evicted > 0 {
                        // The deletion also removed keys of users without leaves.
                        self.stored_keys.invalidate_all();
                    }
                    if tidied.deleted < TIDIED_MAX {
                        return;
                    }
                }
                Ok(Err(error)) => return self.record_purge_failure(&error),
                Err(late) => return self.record_purge_failure(&late),
            }
        }
    }

    fn record_purge_failure(&self, why: &dyn fmt::Display) {
        self.failures.fetch_add(1, Relaxed);
        tracing::warn!(%why, "cannot delete expired leaf certificates");
    }

    /// Logs an unreadable leaf once, until another one is readable: with a wrong master key, every leaf is unreadable.
    fn log_unreadable_leaf(&self, id: &str, why: &StoredLeafError) {
        self.undecryptable.fetch_add(1, Relaxed);
        if self.can_decrypt.swap(false, Relaxed) {
            tracing::warn!(leaf = id, %why, "cannot decrypt a stored leaf certificate; minting a new one");
        } else {
            tracing::debug!(leaf = id, %why, "cannot decrypt a stored leaf certificate; minting a new one");
        }
    }
}

fn micros_of(at: UnixTime) -> i64 {
    at.0.saturating_mul(1_000_000)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
