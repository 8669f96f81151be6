//! The cache, and who does the work.

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
use crate::flying::{Ending, Entry, Flying, Joined};

/// A value, and how long it is true. A lifetime of zero shares the value with those who wait for
/// it now and remembers nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fresh<V> {
    /// The value.
    pub value: V,
    /// From now.
    pub lifetime: Duration,
}

/// A failure, and how long to remember it rather than try again. Zero: not at all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failed<E> {
    /// Why nothing could be made.
    pub error: E,
    /// From now.
    pub lifetime: Duration,
}

/// What the cache holds for a key.
#[derive(Clone, Debug)]
pub struct Cached<V, E> {
    /// The value, or the failure that is remembered.
    pub outcome: Result<V, E>,
    /// Creation time.
    pub since: Instant,
    /// When it stops being true.
    pub until: Instant,
}

impl<V, E> Cached<V, E> {
    /// Whether it is still true at `now`.
    #[must_use]
    pub fn is_fresh(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Whether less than one part in `parts` of its life is left at `now`: time to prefetch.
    #[must_use]
    pub fn ends_soon(&self, now: Instant, parts: u32) -> bool {
        let life = self.until.saturating_duration_since(self.since);
        self.until.saturating_duration_since(now).saturating_mul(parts) < life
    }
}

/// How often each thing happened since the cache was made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Answered from memory, remembered failures included.
    pub hits: u64,
    /// Work begun.
    pub misses: u64,
    /// Waited for work that another had begun.
    pub joined: u64,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    joined: AtomicU64,
}

/// Stands for "for ever" where a lifetime is past what the clock can hold.
const LIFETIME_MAX: Duration = Duration::from_secs(365 * 86_400);

struct CacheState<K, V, E> {
    values: BoundedMap<K, Cached<V, E>>,
    flying: Flying<K, V, E>,
    counters: Counters,
}

/// A bounded cache whose entries expire by their own lifetime and are made once for all who ask.
///
/// Time is tokio's, so tests with paused time own it. Clones share one cache.
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
    /// A cache of at most `entries` entries, failures included; the least recently used go first.
    #[must_use]
    pub fn with_entries(entries: u64) -> Self {
        Self::with_weight(entries, |_, _| 1)
    }

    /// A cache whose entries weigh at most `weight_max` together, in the unit of `weigh`.
    #[must_use]
    pub fn with_weight(
        weight_max: u64,
        weigh: impl Fn(&K, &Result<V, E>) -> u32 + Send + Sync + 'static,
    ) -> Self {
        let values = BoundedMap::builder(weight_max)
            .weigher(move |key, cached: &Cached<V, E>| weigh(key, &cached.outcome))
            // The default may refuse a new entry, which would then be made again each time.
            .eviction(Eviction::LeastRecent)
            .build();
        Self(Arc::new(CacheState { values, flying: Flying::new(), counters: Counters::default() }))
    }

    /// What is remembered for `key` and still true. Counts as a hit.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<Arc<Cached<V, E>>> {
        let cached = self.0.fresh(key);
        if cached.is_some() {
            self.0.counters.hits.fetch_add(1, Ordering::Relaxed);
        }
        cached
    }

    /// What is remembered for `key`, true or no longer.
    #[must_use]
    pub fn get_stale(&self, key: &K) -> Option<Arc<Cached<V, E>>> {
        self.0.values.get_shared(key)
    }

    /// The cached value, or what `make` makes: exactly once for all who ask meanwhile.
    ///
    /// # Errors
    /// What `make` failed with, now or within the lifetime of an earlier failure.
    ///
    /// # Panics
    /// When this caller's own `make` panics. Others who waited start again with theirs.
    ///
    /// # Cancellation
    /// Dropping the future cancels nothing for others; with the last, the work is dropped.
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
                    // Not our panic: try with our own work.
                    Ending::Panicked(_) => {}
                },
            }
        }
    }

    /// Runs `make` although a value may be cached and true, and replaces it. `None` when work for
    /// `key` is already under way, which does as well.
    ///
    /// Meanwhile callers are answered from memory; once that is no longer true they join this work.
    /// A failed refresh leaves a value that is still true alone.
    ///
    /// # Panics
    /// When `make` panics.
    ///
    /// # Cancellation
    /// As [`Cache::fetch`].
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

    /// Forgets `key`. Work under way finishes for those who wait for it and is not remembered.
    pub fn invalidate(&self, key: &K) {
        let mut part = self.0.flying.part(key);
        part.remove(key);
        self.0.values.invalidate(key);
    }

    /// How often each thing happened.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let counters = &self.0.counters;
        Counts {
            hits: counters.hits.load(Ordering::Relaxed),
            misses: counters.misses.load(Ordering::Relaxed),
            joined: counters.joined.load(Ordering::Relaxed),
        }
    }

    /// Keys being worked on now.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.0.flying.len()
    }

    /// Entries held, true or no longer; after pending evictions.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.0.values.run_pending_tasks();
        self.0.values.entry_count()
    }
}

/// Cached results that may be used instead of new work.
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

    /// Under one lock, so that of all callers one begins. Nothing of the caller runs under it.
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
        // Finished between the first look and the lock.
        if let Some(cached) = this.fresh(key).filter(|_| reuse == Reuse::WhatIsTrue) {
            this.counters.hits.fetch_add(1, Ordering::Relaxed);
            return Step::Known(cached);
        }
        this.counters.misses.fetch_add(1, Ordering::Relaxed);
        let landing = Landing { inner: this.clone(), key: key.clone(), id: this.flying.next_id() };
        let id = landing.id;
        // Taken at most once: both callers of this function stop after `Begun`.
        let work: Joined<V, E> = run(landing, make.take()).boxed().shared();
        if let Some(weak) = work.downgrade() {
            part.insert(key.clone(), Entry { id, work: weak });
        }
        Step::Begun(work)
    }
}

async fn run<K, V, E, F, W>(landing: Landing<K, V, E>, make: Option<F>) -> Ending<V, E>
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
        Ok(made) => Ending::Done(landing.land(made)),
        Err(payload) => Ending::Panicked(Arc::new(Mutex::new(Some(payload)))),
    }
}

/// Takes the work off the table however it ends: done, panicked, or dropped by its last waiter.
struct Landing<K: Hash + Eq, V, E> {
    inner: Arc<CacheState<K, V, E>>,
    key: K,
    id: u64,
}

impl<K, V, E> Landing<K, V, E>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    fn land(self, made: Result<Fresh<V>, Failed<E>>) -> Result<V, E> {
        let (outcome, lifetime) = match made {
            Ok(Fresh { value, lifetime }) => (Ok(value), lifetime),
            Err(Failed { error, lifetime }) => (Err(error), lifetime),
        };
        // Under the lock: `invalidate` either comes before and takes our entry away, or after and
        // takes the value away.
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

    /// A refresh that failed while the value is still true.
    fn would_hide_a_value(&self, outcome: &Result<V, E>) -> bool {
        outcome.is_err() && self.inner.fresh(&self.key).is_some_and(|kept| kept.outcome.is_ok())
    }
}

impl<K: Hash + Eq, V, E> Drop for Landing<K, V, E> {
    fn drop(&mut self) {
        let mut part = self.inner.flying.part(&self.key);
        if part.get(&self.key).is_some_and(|entry| entry.id == self.id) {
            part.remove(&self.key);
        }
    }
}
