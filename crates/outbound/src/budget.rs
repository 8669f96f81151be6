//! Limits of concurrent connections: in total, and for each named class.
//!
//! [`AdaptiveLimit`] is one such limit. It halves under pressure from the machine or network, and grows by one at a time while
//! connections succeed (additive increase, multiplicative decrease, as in TCP). [`Budget`] has one limit over everything and one
//! for each class below it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Lowest limit under pressure: some progress is needed to detect that the pressure has ended.
const LIMIT_MIN: usize = 4;
/// Minimum time between two halvings of the limit. One shortage fails all connections in flight, but must halve the limit only once.
const HALVING_PAUSE: Duration = Duration::from_millis(500);
/// Number of outcomes in a window for judging losses. Small enough to react within a second at a few hundred outcomes per second,
/// large enough that a few dead hosts are no trend.
const LOSS_WINDOW: u32 = 128;
/// Maximum number of classes; their names come from the program (providers), not from users.
const CLASSES_MAX: usize = 64;

/// A sign that fewer connections should be in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pressure {
    /// EMFILE, ENFILE, ENOBUFS or EADDRNOTAVAIL: this machine is out of resources.
    OutOfResources,
    /// A timeout or reset: significant only when many occur together.
    Lost,
}

/// A snapshot of an [`AdaptiveLimit`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Gauges {
    /// Permits in use.
    pub in_flight: usize,
    /// Current number of permits.
    pub limit: usize,
    /// Maximum number of permits: the limit while there is no pressure.
    pub limit_max: usize,
    /// Number of calls that waited for a permit.
    pub waits: u64,
    /// Number of times the limit was halved.
    pub halvings: u64,
}

struct Shared {
    permits: Semaphore,
    limit_max: usize,
    limit: AtomicUsize,
    in_flight: AtomicUsize,
    /// Permits to remove when they are returned: the limit is below the number in flight.
    permits_to_remove: AtomicUsize,
    waits: AtomicU64,
    halvings: AtomicU64,
    trend: Mutex<Trend>,
}

/// Recent outcomes, updated under a lock that is held for a few instructions.
#[derive(Default)]
struct Trend {
    halved_at: Option<Instant>,
    successes: usize,
    seen: u32,
    lost: u32,
    /// Losses in the previous window; `None` before the first window is full.
    lost_before: Option<u32>,
}

/// An adaptive limit of concurrent connections. Clones share it.
#[derive(Clone)]
pub struct AdaptiveLimit(Arc<Shared>);

/// A permit of an [`AdaptiveLimit`], returned on drop.
#[must_use = "the place is given back when this is dropped"]
pub struct Permit(Arc<Shared>);

impl AdaptiveLimit {
    /// Creates a limit of `limit_max`; zero is treated as one.
    #[must_use]
    pub fn new(limit_max: usize) -> Self {
        let limit_max = limit_max.clamp(1, Semaphore::MAX_PERMITS);
        Self(Arc::new(Shared {
            permits: Semaphore::new(limit_max),
            limit_max,
            limit: AtomicUsize::new(limit_max),
            in_flight: AtomicUsize::new(0),
            permits_to_remove: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            halvings: AtomicU64::new(0),
            trend: Mutex::new(Trend::default()),
        }))
    }

    /// Waits for a permit, first come, first served.
    ///
    /// # Cancellation
    /// Dropping the future leaves the queue.
    #[crate::boxed]
    pub async fn acquire(&self) -> Permit {
        if let Some(permit) = self.try_acquire() {
            return permit;
        }
        self.0.waits.fetch_add(1, Ordering::Relaxed);
        // The semaphore is never closed, so waiting cannot fail; on an error there would be no limit.
        if let Ok(semaphore_permit) = self.0.permits.acquire().await {
            semaphore_permit.forget();
        }
        self.new_permit()
    }

    /// Returns a permit if one is available.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit> {
        self.0.permits.try_acquire().ok()?.forget();
        Some(self.new_permit())
    }

    fn new_permit(&self) -> Permit {
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        Permit(self.0.clone())
    }

    /// Returns the current number of permits, for callers that count their own connections.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// Halves the limit because the machine is out of resources; at most once every half second.
    pub fn push_back(&self) {
        let mut trend = self.0.trend.lock();
        self.0.halve(&mut trend);
    }

    /// Counts a success. As many successes as the limit has permits increase the limit by one.
    pub fn record_success(&self) {
        self.note(None);
    }

    /// Counts an outcome and its pressure, if any. Losses halve the limit only when they rise from less than a quarter of one
    /// window to more than three quarters of the next: a network of dead hosts has constant losses, a congested one has a sudden
    /// rise.
    pub fn note(&self, pressure: Option<Pressure>) {
        let mut trend = self.0.trend.lock();
        if pressure == Some(Pressure::OutOfResources) {
            return self.0.halve(&mut trend);
        }
        if trend.count(pressure == Some(Pressure::Lost)) {
            self.0.halve(&mut trend);
        }
        if pressure.is_none() {
            self.0.grow(&mut trend);
        }
    }

    /// Returns a snapshot of permits, waits and halvings.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        Gauges {
            in_flight: self.0.in_flight.load(Ordering::Relaxed),
            limit: self.limit(),
            limit_max: self.0.limit_max,
            waits: self.0.waits.load(Ordering::Relaxed),
            halvings: self.0.halvings.load(Ordering::Relaxed),
        }
    }
}

impl Trend {
    /// Counts one outcome; returns whether losses have risen suddenly.
    fn count(&mut self, lost: bool) -> bool {
        self.seen += 1;
        self.lost += u32::from(lost);
        if self.seen < LOSS_WINDOW {
            return false;
        }
        let (before, now) = (self.lost_before, self.lost);
        (self.lost_before, self.lost, self.seen) = (Some(now), 0, 0);
        before.is_some_and(|before| before < LOSS_WINDOW / 4) && now > LOSS_WINDOW / 4 * 3
    }
}

impl Shared {
    fn halve(&self, trend: &mut Trend) {
        let now = Instant::now();
        if trend.halved_at.is_some_and(|at| now.duration_since(at) < HALVING_PAUSE) {
            return;
        }
        trend.halved_at = Some(now);
        trend.successes = 0;
        let old = self.limit.load(Ordering::Relaxed);
        let new = (old / 2).max(LIMIT_MIN).min(old);
        self.limit.store(new, Ordering::Relaxed);
        self.halvings.fetch_add(1, Ordering::Relaxed);
        let free = self.permits.forget_permits(old - new);
        self.permits_to_remove.fetch_add(old - new - free, Ordering::AcqRel);
    }

    fn grow(&self, trend: &mut Trend) {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit >= self.limit_max {
            return;
        }
        trend.successes += 1;
        if trend.successes < limit {
            return;
        }
        trend.successes = 0;
        self.limit.store(limit + 1, Ordering::Relaxed);
        if !self.remove_permit() {
            self.permits.add_permits(1);
        }
    }

    /// Deducts one permit from the permits that a halving of the limit still has to remove. Returns false if there are none.
    fn remove_permit(&self) -> bool {
        self.permits_to_remove.load(Ordering::Acquire) > 0
            && self
                .permits_to_remove
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |permits_to_remove| {
                    permits_to_remove.checked_sub(1)
                })
                .is_ok()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !self.0.remove_permit() {
            self.0.permits.add_permits(1);
        }
    }
}

/// A total limit, and one limit for each class below it.
pub struct Budget {
    whole: AdaptiveLimit,
    class_limit: usize,
    classes: RwLock<BTreeMap<Box<str>, AdaptiveLimit>>,
}

/// A permit of the total and of a class, returned on drop.
#[must_use = "the places are given back when this is dropped"]
pub struct BudgetPermit {
    _whole: Permit,
    _class: Permit,
}

impl Budget {
    /// Creates a budget with at most `whole` permits, and `class_limit` for each class unless [`Budget::set_class`] sets another.
    #[must_use]
    pub fn new(whole: usize, class_limit: usize) -> Self {
        Self { whole: AdaptiveLimit::new(whole), class_limit, classes: RwLock::default() }
    }

    /// Sets the limit of `class`. Permits granted under the previous limit do not count in the new one.
    pub fn set_class(&self, class: &str, limit: usize) {
        self.classes.write().insert(class.into(), AdaptiveLimit::new(limit));
    }

    /// Waits for a permit of `class` and then for a permit of the total, always in this order. A caller that waits for a slow class
    /// therefore holds no permit of the total, and slow classes do not block others.
    #[crate::boxed]
    pub async fn acquire(&self, class: &str) -> BudgetPermit {
        let class = self.class(class).acquire().await;
        BudgetPermit { _whole: self.whole.acquire().await, _class: class }
    }

    /// Returns the total limit.
    #[must_use]
    pub fn whole(&self) -> &AdaptiveLimit {
        &self.whole
    }

    /// Returns the limit of `class`. After 64 classes, new names share the limit of the class "other".
    #[must_use]
    pub fn class(&self, class: &str) -> AdaptiveLimit {
        if let Some(limit) = self.classes.read().get(class) {
            return limit.clone();
        }
        let mut classes = self.classes.write();
        let name = if classes.len() < CLASSES_MAX { class } else { "other" };
        classes.entry(name.into()).or_insert_with(|| AdaptiveLimit::new(self.class_limit)).clone()
    }

    /// Returns the name and the metrics of every class.
    #[must_use]
    pub fn gauges(&self) -> Vec<(String, Gauges)> {
        let classes = self.classes.read();
        classes.iter().map(|(name, limit)| (name.to_string(), limit.gauges())).collect()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn permits_are_released_on_drop() {
        let limit = AdaptiveLimit::new(2);
        let (one, _two) = (limit.acquire().await, limit.acquire().await);
        assert!(limit.try_acquire().is_none());
        let mut third = Box::pin(limit.acquire());
        assert!(third.as_mut().now_or_never().is_none(), "waits");
        drop(one);
        let _third = third.await;
        assert_eq!(limit.gauges(), Gauges { in_flight: 2, limit: 2, limit_max: 2, waits: 1, halvings: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn simultaneous_shortages_halve_the_limit_once() {
        let limit = AdaptiveLimit::new(64);
        for _ in 0..50 {
            limit.push_back();
        }
        assert_eq!(limit.limit(), 32);
        for _ in 0..20 {
            pass(1).await;
            limit.push_back();
        }
        assert_eq!(limit.limit(), LIMIT_MIN, "never to nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn lowered_limit_applies_as_permits_are_released() {
        let limit = AdaptiveLimit::new(8);
        let mut permits: Vec<_> = (0..8).filter_map(|_| limit.try_acquire()).collect();
        limit.push_back();
        permits.truncate(4);
        assert!(limit.try_acquire().is_none(), "four in flight, four allowed");
        permits.truncate(3);
        assert!(limit.try_acquire().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn limit_recovers_slowly_up_to_the_maximum() {
        let limit = AdaptiveLimit::new(8);
        limit.push_back();
        for well in 0..4 + 5 + 6 + 7 {
            assert!(limit.limit() < 8, "after {well}");
            limit.record_success();
        }
        for _ in 0..100 {
            limit.record_success();
        }
        assert_eq!(limit.limit(), 8);
        assert_eq!((0..9).filter_map(|_| limit.try_acquire()).map(std::mem::forget).count(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn constant_loss_keeps_the_limit_and_sudden_loss_halves_it() {
        let dead = AdaptiveLimit::new(64);
        (0..10 * LOSS_WINDOW).for_each(|_| dead.note(Some(Pressure::Lost)));
        assert_eq!(dead.limit(), 64);
        let congested = AdaptiveLimit::new(64);
        (0..LOSS_WINDOW).for_each(|_| congested.note(None));
        (0..LOSS_WINDOW).for_each(|_| congested.note(Some(Pressure::Lost)));
        assert_eq!(congested.limit(), 32);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_class_blocks_only_itself() {
        let budget = Budget::new(2, 1);
        let _slow = budget.acquire("slow").await;
        assert!(budget.acquire("slow").now_or_never().is_none());
        assert!(budget.acquire("quick").now_or_never().is_some());
        assert_eq!(budget.whole().gauges().in_flight, 1);
    }

    proptest! {
        #[test]
        fn permits_are_neither_lost_nor_duplicated(steps in proptest::collection::vec(0_u8..4, 1..400)) {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let limit = AdaptiveLimit::new(16);
                let mut permits = Vec::new();
                for step in steps {
                    match step {
                        0 => permits.extend(limit.try_acquire()),
                        1 => drop(permits.pop()),
                        2 => limit.record_success(),
                        _ => { pass(1).await; limit.push_back(); }
                    }
                }
                permits.clear();
                let free = std::iter::from_fn(|| limit.try_acquire()).map(std::mem::forget).count();
                prop_assert_eq!(free, limit.limit());
                Ok(())
            })?;
        }
    }
}
