//! The second level behind memory: a database that several proxies share, or one in a file of this machine.
//!
//! Memory asks it for what it has not; it says "here", "mint it, nobody else does meanwhile" or "another mints it", and the
//! last is retried until it is one of the others: a minter that died loses its lease. What a leaf is kept as, and how it
//! is sealed, is in [`seals`]; what the database does is in crate `store`.
//!
//! The trips are bounded in time. When one fails, the level counts as away: nobody asks it, leaves are minted here or refused
//! as [`WhenAway`] says, and [`SecondLevel::keep`] asks until it answers again.

mod backend;
mod lazy_backend;
mod seals;

pub use backend::Backend;
pub use lazy_backend::{Opened, Opening};
pub use seals::Unopened;

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
use super::{FetchError, KeyGoesTo, LeafId};
use crate::mint::{LEAF_KEY_LIFE_MAX, Leaf, LeafKey, MintError, SIGN_TIMEOUT, VALIDITY_MAX};
use crate::tables::{LeafAsk, LeafLookup, NewLeaf, OWN_KEY_ENDS_AFTER_US, TIDIED_MAX};

/// For one trip to the backend, unless said otherwise.
pub const TRIP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a minter has before another takes over, its trips lasting the usual time at most.
pub const LEASE: Duration = lease_of(TRIP_TIMEOUT);

/// Within it are the rest of the trip that took it, the authority's signature, and the trips that put key and leaf.
#[must_use]
pub const fn lease_of(trip: Duration) -> Duration {
    SIGN_TIMEOUT.saturating_add(trip.saturating_mul(3))
}
/// Leaves kept, unless said otherwise; some 1.5 KiB each.
pub const LEAVES_MAX: u64 = 100_000;
/// How soon a waiter asks again at first, and how soon in the end; between, each time after twice as long.
const POLL_FIRST: Duration = Duration::from_millis(5);
const POLL_LAST: Duration = Duration::from_millis(100);
/// Interval of probes while the storage is unavailable.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// How often what has ended is deleted, by one proxy of all.
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// For one batch of that.
const TIDY_TIMEOUT: Duration = Duration::from_secs(30);
/// Batches in a row; the rest goes the next time.
const TIDY_BATCHES_MAX: usize = 100;
/// Keys of other proxies held open; a proxy makes one of each kind an hour.
const KEYS_OPEN_MAX: u64 = 1_024;
/// How long a key's end counts as said: then it is put again with a later one.
const KEY_SAID_FOR: Duration = Duration::from_secs(3_600);
/// How long a key is kept from when it was put: a leaf may be made over it until it is changed, and may hold that long.
const KEY_KEPT: Duration = VALIDITY_MAX.saturating_add(LEAF_KEY_LIFE_MAX).saturating_add(KEY_SAID_FOR);
/// Leaves put again after the lease was lost, before one goes out that the others do not have.
const PUTS_MAX: usize = 2;

/// What is done for names that are not in memory while the backend is away.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WhenAway {
    /// They are minted here; other proxies may show other leaves for them.
    #[default]
    Mint,
    /// Their handshakes fail.
    Refuse,
}

/// How the second level is used.
#[derive(Clone, Copy, Debug)]
pub struct SecondLevelOptions {
    /// Behaviour while the storage is unavailable.
    pub when_away: WhenAway,
    /// For one trip.
    pub trip_timeout: Duration,
    /// How long a minter has before another takes over.
    pub lease: Duration,
    /// Leaves kept; beyond, those go that were minted the longest ago.
    pub leaves_max: u64,
    /// Whether other machines have it too.
    pub is_shared: bool,
}

impl Default for SecondLevelOptions {
    fn default() -> Self {
        Self {
            when_away: WhenAway::Mint,
            trip_timeout: TRIP_TIMEOUT,
            lease: LEASE,
            leaves_max: LEAVES_MAX,
            is_shared: true,
        }
    }
}

/// How often each thing happened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SecondLevelCounts {
    /// Leaves found there.
    pub found: u64,
    /// Leaves that another was minting when they were asked for.
    pub awaited: u64,
    /// Leaves that did not open, and were minted again.
    pub unopened: u64,
    /// Trips that failed, or took too long.
    pub failures: u64,
    /// Leaves minted, or refused, without it.
    pub without: u64,
    /// Whether it is away now.
    pub away: bool,
}

/// A level behind memory. Cheap to clone; clones are one level.
#[derive(Clone)]
pub struct SecondLevel(Arc<LevelState>);

struct LevelState {
    backend: LazyBackend,
    options: SecondLevelOptions,
    /// This process, in leases.
    holder: Uuid,
    /// Keys of leaves, by id.
    open: BoundedMap<String, LeafKey>,
    /// Keys that the backend has, by id, and until when, µs.
    said: BoundedMap<String, i64>,
    away: AtomicBool,
    /// Notified when the storage becomes unavailable.
    trouble: Notify,
    /// Whether the last leaf that was found opened.
    opens: AtomicBool,
    found: AtomicU64,
    awaited: AtomicU64,
    unopened: AtomicU64,
    failures: AtomicU64,
    without: AtomicU64,
}

/// A leaf and its origin.
pub(super) enum Obtained {
    Minted(Leaf),
    Found(Leaf),
}

/// Which proxy mints.
enum Turn {
    Found(Leaf),
    Ours,
}

/// Ours while we mint. Given back when nobody waits for the leaf any more and the minting is dropped.
struct Lease {
    level: Arc<LevelState>,
    id: String,
    is_done: bool,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_done || self.level.away.load(Relaxed) {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (level, id) = (Arc::clone(&self.level), std::mem::take(&mut self.id));
            // It ends by itself: a trip has its limit.
            runtime.spawn(async move {
                let _live = telemetry::tasks::guard("leaf-lease-release");
                level.release(&id).await;
            });
        }
    }
}

/// A request for one leaf.
struct LeafRequest {
    /// Its digest, 64 hexadecimal digits.
    id: String,
    /// Whether its key goes to another process.
    is_handed_out: bool,
    now_us: i64,
    began: Instant,
}

impl LeafRequest {
    /// The caller's clock, which went on while it waited.
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
    /// Keeps leaves and their keys in `backend`, sealed under `ring`: all who share the backend have the same master keys.
    #[must_use]
    pub fn new(backend: impl Backend, ring: Arc<Keyring>, options: SecondLevelOptions) -> Self {
        Self::at(LazyBackend::of(Opened::new(backend, ring)), false, options)
    }

    /// One whose backend is away from the start: `opening` is tried each second by [`Self::keep`], until it is there.
    #[must_use]
    pub fn awaited(opening: Opening, options: SecondLevelOptions) -> Self {
        Self::at(LazyBackend::awaited(opening), true, options)
    }

    fn at(backend: LazyBackend, away: bool, options: SecondLevelOptions) -> Self {
        Self(Arc::new(LevelState {
            backend,
            options,
            holder: Uuid::now_v7(),
            open: BoundedMap::new(KEYS_OPEN_MAX),
            said: BoundedMap::builder(KEYS_OPEN_MAX).time_to_live(KEY_SAID_FOR).build(),
            away: AtomicBool::new(away),
            trouble: Notify::new(),
            opens: AtomicBool::new(true),
            found: AtomicU64::default(),
            awaited: AtomicU64::default(),
            unopened: AtomicU64::default(),
            failures: AtomicU64::default(),
            without: AtomicU64::default(),
        }))
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> SecondLevelCounts {
        let level = &self.0;
        SecondLevelCounts {
            found: level.found.load(Relaxed),
            awaited: level.awaited.load(Relaxed),
            unopened: level.unopened.load(Relaxed),
            failures: level.failures.load(Relaxed),
            without: level.without.load(Relaxed),
            away: level.away.load(Relaxed),
        }
    }

    /// Whether such leaves are kept here.
    pub(super) fn keeps(&self, id: &LeafId) -> bool {
        !(self.0.options.is_shared && id.key_goes_to == KeyGoesTo::ThisMachine)
    }

    /// The leaf that holds until `ends_from` at least, found or minted.
    pub(super) async fn fetch(
        &self,
        id: &LeafId,
        now: UnixTime,
        ends_from: UnixTime,
        minting: impl Future<Output = Result<Leaf, MintError>>,
    ) -> Result<Obtained, FetchError> {
        let is_handed_out = id.key_goes_to != KeyGoesTo::Nobody;
        let (now_us, began) = (micros_of(now), Instant::now());
        let asking = LeafRequest { id: seals::digest_of(id), is_handed_out, now_us, began };
        match self.0.turn(&asking, micros_of(ends_from)).await {
            Some(Turn::Found(leaf)) => Ok(Obtained::Found(leaf)),
            Some(Turn::Ours) => {
                let mut lease = Lease { level: Arc::clone(&self.0), id: asking.id.clone(), is_done: false };
                let made = self.0.mint(&asking, micros_of(ends_from), minting).await;
                lease.is_done = true;
                made
            }
            None => self.0.without(minting).await,
        }
    }

    /// Deletes what has ended, and asks for the backend while it is away, until `stop`.
    pub async fn keep(self, stop: CancellationToken) {
        let level = &self.0;
        let probing = async {
            loop {
                if level.away.load(Relaxed) {
                    tokio::time::sleep(PROBE_EVERY).await;
                    level.probe().await;
                } else {
                    level.trouble.notified().await;
                }
            }
        };
        // Beside it: deleting may take long.
        let tidying = async {
            loop {
                if !level.away.load(Relaxed) {
                    level.tidy().await;
                }
                tokio::time::sleep(TIDY_EVERY).await;
            }
        };
        stop.run_until_cancelled(async { tokio::join!(probing, tidying) }).await;
    }
}

impl LevelState {
    /// Whose turn it is; nothing where that cannot be said: it is away, or others have taken too long.
    async fn turn(&self, asking: &LeafRequest, mut ends_from_us: i64) -> Option<Turn> {
        let opened = self.backend.get()?;
        let began = Instant::now();
        let patience = self.options.lease + self.options.trip_timeout;
        let mut pause = POLL_FIRST;
        let mut waits = false;
        while !self.away.load(Relaxed) {
            let now_us = asking.now_us();
            let ask = LeafAsk {
                id: &asking.id,
                ends_from_us,
                holder: self.holder,
                now_us,
                until_us: now_us.saturating_add(micros(self.options.lease)),
            };
            match self.trip("look", opened.backend.look(ask)).await? {
                LeafLookup::Leased => return Some(Turn::Ours),
                LeafLookup::Stored(held) => match opened.seals.open(&asking.id, &held, &self.open) {
                    Ok(mut leaf) => {
                        leaf.key = leaf.key.for_another(asking.is_handed_out);
                        self.opens.store(true, Relaxed);
                        self.found.fetch_add(1, Relaxed);
                        return Some(Turn::Found(leaf));
                    }
                    Err(why) => {
                        self.tell_unopened(&asking.id, &why);
                        // One that ends later, from anyone who mints it.
                        ends_from_us = held.ends_at_us.saturating_add(1);
                    }
                },
                LeafLookup::Awaited => {
                    if !std::mem::replace(&mut waits, true) {
                        self.awaited.fetch_add(1, Relaxed);
                    }
                    if began.elapsed() >= patience {
                        return None;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(POLL_LAST);
                }
            }
        }
        None
    }

    /// With the lease: mints and puts the leaf. Who lost the lease meanwhile gives out what the others do.
    async fn mint(
        &self,
        asking: &LeafRequest,
        ends_from_us: i64,
        minting: impl Future<Output = Result<Leaf, MintError>>,
    ) -> Result<Obtained, FetchError> {
        let leaf = match minting.await {
            Ok(leaf) => leaf,
            Err(error) => {
                self.release(&asking.id).await;
                return Err(error.into());
            }
        };
        for _ in 0..PUTS_MAX {
            // Where it is away the client is served all the same.
            if self.put(asking, &leaf).await != Some(false) {
                break;
            }
            // The row is gone, perhaps with all others.
            self.said.invalidate_all();
            match self.turn(asking, ends_from_us).await {
                Some(Turn::Found(theirs)) => return Ok(Obtained::Found(theirs)),
                Some(Turn::Ours) => {}
                None => break,
            }
        }
        Ok(Obtained::Minted(leaf))
    }

    /// Whether it is put; nothing where the backend is away.
    async fn put(&self, asking: &LeafRequest, leaf: &Leaf) -> Option<bool> {
        let opened = self.backend.get()?;
        let key_id = seals::key_id_of(&leaf.key);
        let now_us = asking.now_us();
        let with_leaves = leaf.key.ends_with_its_leaves();
        let ends_at_us = match with_leaves {
            true => micros_of(leaf.not_after).saturating_add(OWN_KEY_ENDS_AFTER_US),
            false => now_us.saturating_add(micros(KEY_KEPT)),
        };
        if self.said.get(&key_id).is_none_or(|said| with_leaves && said < ends_at_us) {
            let sealed = opened.seals.seal_key(&key_id, &leaf.key);
            self.trip("put the key", opened.backend.put_key(&key_id, &sealed, ends_at_us)).await?;
            // Nobody asks for that of one leaf again: what is in memory has it.
            if !leaf.key.is_of_one_leaf() {
                self.open.insert(key_id.clone(), leaf.key.clone());
                self.said.insert(key_id.clone(), ends_at_us);
            }
        }
        let sealed = opened.seals.seal_leaf(&asking.id, leaf);
        let new = NewLeaf {
            id: &asking.id,
            holder: self.holder,
            sealed: &sealed,
            key_id: &key_id,
            ends_at_us: micros_of(leaf.not_after),
            now_us,
        };
        self.trip("put", opened.backend.put(new)).await
    }

    async fn release(&self, id: &str) {
        if let Some(opened) = self.backend.get() {
            self.trip("release", opened.backend.release(id, self.holder)).await;
        }
    }

    async fn without(
        &self,
        minting: impl Future<Output = Result<Leaf, MintError>>,
    ) -> Result<Obtained, FetchError> {
        self.without.fetch_add(1, Relaxed);
        match self.options.when_away {
            WhenAway::Mint => Ok(Obtained::Minted(minting.await?)),
            WhenAway::Refuse if self.away.load(Relaxed) => Err(FetchError::Away),
            WhenAway::Refuse => Err(FetchError::Awaited),
        }
    }

    /// Asks the backend, for so long; a failure makes it count as away.
    async fn trip<T>(
        &self,
        what: &'static str,
        asked: impl Future<Output = Result<T, StoreError>>,
    ) -> Option<T> {
        let limit = self.options.trip_timeout;
        let why = match tokio::time::timeout(limit, asked).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} ms", limit.as_millis()),
        };
        self.failures.fetch_add(1, Relaxed);
        if self.away.swap(true, Relaxed) {
            tracing::debug!(what, why, "the certificate store does not answer");
        } else {
            let when_away = self.options.when_away;
            tracing::error!(what, why, ?when_away, "the certificate store is away; memory goes on");
            self.trouble.notify_one();
        }
        None
    }

    async fn probe(&self) {
        let is_back = match self.backend.get() {
            // Writes, to nobody's row: a server that can be read alone is of no use.
            Some(opened) => self.trip("probe", opened.backend.release("", self.holder)).await.is_some(),
            None => match self.backend.open().await {
                Ok(()) => true,
                Err(()) => {
                    self.failures.fetch_add(1, Relaxed);
                    false
                }
            },
        };
        if is_back {
            self.away.store(false, Relaxed);
            tracing::info!("the certificate store is back");
        }
    }

    async fn tidy(&self) {
        let Some(opened) = self.backend.get() else { return };
        for _ in 0..TIDY_BATCHES_MAX {
            let now_us = micros_of(clock::now());
            let tidying = opened.backend.tidy(self.holder, now_us, TIDY_EVERY, self.options.leaves_max);
            // Slow as it may be, it says nothing of whether leaves are had.
            match tokio::time::timeout(TIDY_TIMEOUT, tidying).await {
                Ok(Ok(tidied)) => {
                    if tidied.evicted > 0 {
                        // Keys of users who have no leaf any more went too.
                        self.said.invalidate_all();
                    }
                    if tidied.deleted < TIDIED_MAX {
                        return;
                    }
                }
                Ok(Err(error)) => return self.not_tidied(&error),
                Err(late) => return self.not_tidied(&late),
            }
        }
    }

    fn not_tidied(&self, why: &dyn fmt::Display) {
        self.failures.fetch_add(1, Relaxed);
        tracing::warn!(%why, "leaves that have ended were not deleted");
    }

    /// Once, until one opens again: with the wrong master key it is all of them.
    fn tell_unopened(&self, id: &str, why: &Unopened) {
        self.unopened.fetch_add(1, Relaxed);
        if self.opens.swap(false, Relaxed) {
            tracing::warn!(leaf = id, %why, "a kept leaf does not open and is minted anew");
        } else {
            tracing::debug!(leaf = id, %why, "a kept leaf does not open and is minted anew");
        }
    }
}

fn micros_of(at: UnixTime) -> i64 {
    at.0.saturating_mul(1_000_000)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
