//! A cache with single flight: concurrent callers share the work for a missing entry.

use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::bounded_map::BoundedMap;
use crate::erased::Eviction;
use crate::flying::{Ending, Entry, Joined, WorkInFlight};

/// A value and how long it is valid. With a lifetime of zero, only the current waiters get the value, and it is not cached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fresh<V> {
    /// The result that waiters get.
    pub value: V,
    /// Time from now for which the value is cached.
    pub lifetime: Duration,
}

/// A failure and how long it is cached. With a lifetime of zero, the failure is not cached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failed<E> {
    /// The error that waiters get.
    pub error: E,
    /// Time from now for which the error is cached.
    pub lifetime: Duration,
}

/// A cached value or failure, with its creation and expiry times.
#[derive(Clone, Debug)]
pub struct Cached<V, E> {
    /// The cached value or failure.
    pub outcome: Result<V, E>,
    /// Creation time.
    pub since: Instant,
    /// Expiry time.
    pub until: Instant,
}

impl<V, E> Cached<V, E> {
    /// Returns whether the entry is still valid at `now`.
    #[must_use]
    pub fn is_fresh(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Returns whether less than 1/`parts` of the entry's lifetime remains at `now`, so that the entry should be prefetched.
    #[must_use]
    pub fn expires_soon(&self, now: Instant, parts: u32) -> bool {
        let life = self.until.saturating_duration_since(self.since);
        self.until.saturating_duration_since(now).saturating_mul(parts) < life
    }
}

/// Counters of cache lookups since the cache was created: hits, misses and joined calls.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Calls answered from the cache, including cached failures.
    pub hits: u64,
    /// Calls that started work.
    pub misses: u64,
    /// Calls that waited for work started by another call.
    pub joined: u64,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    joined: AtomicU64,
}

/// Limit of lifetimes, so that the expiry does not overflow the clock.
const LIFETIME_MAX: Duration = Duration::from_secs(365 * 86_400);

struct CacheState<K, V, E> {
    values: BoundedMap<K, Cached<V, E>>,
    flying: WorkInFlight<K, V, E>,
    counters: Counters,
}

/// A bounded cache. Each entry has its own lifetime; concurrent callers share the work for a missing entry.
///
/// Uses tokio's time, so tests can control it by pausing time. Clones share one cache.
pub struct Cache<K, V, E>(Arc<CacheState<K, V, E>>);

impl<K, V, E> Clone for Cache<K, V, E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V, E> Cache<K, V, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// Creates a cache of at most `entries` entries, including failures; evicts the least recently used.
    #[must_use]
    pub fn with_entries_max(entries: u64) -> Self {
        Self::with_weight_max(entries, |_, _| 1)
    }

    /// Creates a cache whose entries weigh at most `weight_max` together, in the unit of `weigh`.
    #[must_use]
    pub fn with_weight_max(
        weight_max: u64,
        weigh: impl Fn(&K, &Result<V, E>) -> u32 + Send + Sync + 'static,
    ) -> Self {
        let values = BoundedMap::builder(weight_max)
            .weigher(move |key, cached: &Cached<V, E>| weigh(key, &cached.outcome))
            // The default policy may reject a new entry, which would then be created again each time.
            .eviction(Eviction::LeastRecent)
            .build();
        Self(Arc::new(CacheState { values, flying: WorkInFlight::new(), counters: Counters::default() }))
    }

    /// Returns the valid entry of `key`. Counts as a hit.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<Arc<Cached<V, E>>> {
        let cached = self.0.fresh(key);
        if cached.is_some() {
            self.0.counters.hits.fetch_add(1, Ordering::Relaxed);
        }
        cached
    }

    /// Returns the entry of `key`, valid or expired.
    #[must_use]
    pub fn get_stale(&self, key: &K) -> Option<Arc<Cached<V, E>>> {
        self.0.values.get_shared(key)
    }

    /// Returns the cached value, or runs `make` once for all concurrent callers.
    ///
    /// # Errors
    /// The error of `make`, or a cached error.
    ///
    /// # Panics
    /// When this caller's own `make` panics. Other callers that waited for it run their own.
    ///
    /// # Cancellation
    /// Dropping the future does not affect other callers; when the last caller is dropped, the work is dropped.
    pub async fn fetch<F, W>(&self, key: &K, make: F) -> Result<V, E>
    where
        F: FnOnce() -> W + Send + 'static,
        W: Future<Output = Result<Fresh<V>, Failed<E>>> + Send + 'static,
    {
        let mut make = Some(make);
        loop {
            if let Some(cached) = self.get(key) {
                return cached.outcome.clone();
            }
            match CacheState::join_or_begin(&self.0, key, &mut make, Reuse::WhatIsTrue) {
                Step::Known(cached) => return cached.outcome.clone(),
                Step::Begun(work) => return work.await.into_result(),
                Step::Joined(work) => match work.await {
                    Ending::Done(result) => return result,
                    // The panic belongs to another caller: run this caller's work.
                    Ending::Panicked(_) => {}
                },
            }
        }
    }

    /// Runs `make` even if a valid value is cached, and replaces that value. Returns `None` when work for `key` is already in
    /// progress.
    ///
    /// Meanwhile other callers get the cached value; once it expires they wait for this work. A failed refresh does not replace a
    /// valid value.
    ///
    /// # Panics
    /// When `make` panics.
    ///
    /// # Cancellation
    /// See [`Cache::fetch`].
    pub async fn refresh<F, W>(&self, key: &K, make: F) -> Option<Result<V, E>>
    where
        F: FnOnce() -> W + Send + 'static,
        W: Future<Output = Result<Fresh<V>, Failed<E>>> + Send + 'static,
    {
        match CacheState::join_or_begin(&self.0, key, &mut Some(make), Reuse::Nothing) {
            Step::Begun(work) => Some(work.await.into_result()),
            Step::Joined(_) | Step::Known(_) => None,
        }
    }

    /// Removes `key`. Work in progress continues for its waiters, but its result is not cached.
    pub fn invalidate(&self, key: &K) {
        let mut part = self.0.flying.part(key);
        part.remove(key);
        self.0.values.invalidate(key);
    }

    /// Returns the counters of hits, misses and joined calls since the cache was created.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let counters = &self.0.counters;
        Counts {
            hits: counters.hits.load(Ordering::Relaxed),
            misses: counters.misses.load(Ordering::Relaxed),
            joined: counters.joined.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of keys with work in progress.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.0.flying.len()
    }

    /// Returns the number of entries, valid or expired, after pending evictions.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.0.values.run_pending_tasks();
        self.0.values.entry_count()
    }
}

/// Whether a caller accepts a cached result in place of new work.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Reuse {
    WhatIsTrue,
    Nothing,
}

enum Step<V, E> {
    Known(Arc<Cached<V, E>>),
    Joined(Joined<V, E>),
    Begun(Joined<V, E>),
}

impl<K, V, E> CacheState<K, V, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    fn fresh(&self, key: &K) -> Option<Arc<Cached<V, E>>> {
        self.values.get_shared(key).filter(|cached| cached.is_fresh(Instant::now()))
    }

    /// Joins the work in progress or starts it. The lock ensures that only one caller starts; no code of the caller runs while it
    /// is locked.
    fn join_or_begin<F, W>(this: &Arc<Self>, key: &K, make: &mut Option<F>, reuse: Reuse) -> Step<V, E>
    where
        F: FnOnce() -> W + Send + 'static,
        W: Future<Output = Result<Fresh<V>, Failed<E>>> + Send + 'static,
    {
        let mut part = this.flying.part(key);
        if let Some(work) = part.get(key).and_then(|entry| entry.work.upgrade()) {
            this.counters.joined.fetch_add(1, Ordering::Relaxed);
            return Step::Joined(work);
        }
        // The work may have finished between the first lookup and the lock.
        if let Some(cached) = this.fresh(key).filter(|_| reuse == Reuse::WhatIsTrue) {
            this.counters.hits.fetch_add(1, Ordering::Relaxed);
            return Step::Known(cached);
        }
        this.counters.misses.fetch_add(1, Ordering::Relaxed);
        let guard = FlightGuard { inner: this.clone(), key: key.clone(), id: this.flying.next_id() };
        let id = guard.id;
        // `make` is taken at most once: both callers of this function stop after `Begun`.
        let work: Joined<V, E> = run(guard, make.take()).boxed().shared();
        if let Some(weak) = work.downgrade() {
            part.insert(key.clone(), Entry { id, work: weak });
        }
        Step::Begun(work)
    }
}

async fn run<K, V, E, F, W>(guard: FlightGuard<K, V, E>, make: Option<F>) -> Ending<V, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
    F: FnOnce() -> W,
    W: Future<Output = Result<Fresh<V>, Failed<E>>>,
{
    let made = AssertUnwindSafe(async move {
        match make {
            Some(make) => make().await,
            None => unreachable!("work is begun with the caller's `make`"),
        }
    })
    .catch_unwind()
    .await;
    match made {
        Ok(made) => Ending::Done(guard.complete(made)),
        Err(payload) => Ending::Panicked(Arc::new(Mutex::new(Some(payload)))),
    }
}

/// A guard for work in progress: removes it from the table when it is done, when it panics, and when its last waiter is dropped.
struct FlightGuard<K: Hash + Eq, V, E> {
    inner: Arc<CacheState<K, V, E>>,
    key: K,
    id: u64,
}

impl<K, V, E> FlightGuard<K, V, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    fn complete(self, made: Result<Fresh<V>, Failed<E>>) -> Result<V, E> {
        let (outcome, lifetime) = match made {
            Ok(Fresh { value, lifetime }) => (Ok(value), lifetime),
            Err(Failed { error, lifetime }) => (Err(error), lifetime),
        };
        // Locked, so that `invalidate` runs either before and removes the table entry, or after and removes the cached value.
        let part = self.inner.flying.part(&self.key);
        let ours = part.get(&self.key).is_some_and(|entry| entry.id == self.id);
        if ours && !lifetime.is_zero() && !self.would_hide_a_value(&outcome) {
            let since = Instant::now();
            let until = since.checked_add(lifetime).unwrap_or_else(|| since + LIFETIME_MAX);
            let cached = Cached { outcome: outcome.clone(), since, until };
            self.inner.values.insert(self.key.clone(), cached);
        }
        drop(part);
        outcome
    }

    /// Returns whether the outcome is a failed refresh while the cached value is still valid.
    fn would_hide_a_value(&self, outcome: &Result<V, E>) -> bool {
        outcome.is_err() && self.inner.fresh(&self.key).is_some_and(|current| current.outcome.is_ok())
    }
}

impl<K: Hash + Eq, V, E> Drop for FlightGuard<K, V, E> {
    fn drop(&mut self) {
        let mut part = self.inner.flying.part(&self.key);
        if part.get(&self.key).is_some_and(|entry| entry.id == self.id) {
            part.remove(&self.key);
        }
    }
}
