//! Cache of expiring credentials. Credentials are fetched once for all waiting callers and renewed well before they expire.
//!
//! A separate task fetches them: a caller may stop waiting, for example at its deadline, and the next caller gets the result. No
//! caller waits while the cached credentials are valid.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use flight::{Cache, Failed, Fresh};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::ApiError;
use outbound::pool::Verdict;
use outbound::retry::{self, Policy};

/// Minimum remaining lifetime of credentials for a new call. Longer than a call takes.
const LIFETIME_MIN: Duration = Duration::from_secs(10);
/// Time before expiry at which credentials are renewed, or a quarter of their lifetime if that is less. Providers issue new
/// credentials five minutes before expiry, not earlier.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// Delay between two attempts to renew credentials that are still valid.
const RENEW_RETRY: Duration = Duration::from_secs(30);
/// Timeout of one attempt. Some credentials come from an external program or from several services in turn.
const TRY_LIMIT: Duration = Duration::from_secs(20);
/// Timeout of all attempts together.
const FETCH_LIMIT: Duration = Duration::from_secs(60);
/// Retry policy after a temporary failure.
const RETRY: Policy = Policy { base: Duration::from_millis(200), cap: Duration::from_secs(2), retries: 6 };
/// Time for which a failure is cached, so that many callers do not all send requests to a failing service.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);

/// A fetched value and its expiry.
pub(super) type FetchFuture<T> = BoxFuture<'static, Result<(T, SystemTime), ApiError>>;
/// A function that makes one attempt to fetch. Its argument is the value that was refused last, of which the source may have a
/// cached copy.
pub(super) type Source<T> = Box<dyn Fn(Option<T>) -> FetchFuture<T> + Send + Sync>;
type Clock = Box<dyn Fn() -> SystemTime + Send + Sync>;

/// A value that expires, and its source.
pub(super) struct ExpiringValue<T> {
    inner: Arc<ExpiringValueState<T>>,
    /// The fetch task. Aborted on drop.
    fetching: Mutex<Option<AbortOnDropHandle<()>>>,
}

struct ExpiringValueState<T> {
    source: Source<T>,
    now: Clock,
    /// Current credentials. The lock is never held across an await.
    leases: Mutex<Leases<T>>,
    flight: Cache<(), T, ApiError>,
}

struct Leases<T> {
    lease: Option<Lease<T>>,
    /// Value that the service refused before its expiry.
    refused: Option<T>,
    /// Number of finished fetches, failed ones included.
    ended: u64,
}

struct Lease<T> {
    value: T,
    /// Value of `ended` after this fetch.
    number: u64,
    end: SystemTime,
    renew_at: SystemTime,
}

/// State of a cached value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LeaseAge {
    Good,
    /// Valid, but due for renewal.
    Due,
    Over,
}

impl<T> Lease<T> {
    fn new(value: T, number: u64, end: SystemTime, now: SystemTime) -> Self {
        let life = end.duration_since(now).unwrap_or_default();
        let renew_at = end.checked_sub(RENEW_BEFORE.min(life / 4)).unwrap_or(now);
        Self { value, number, end, renew_at }
    }

    fn age(&self, now: SystemTime) -> LeaseAge {
        if now + LIFETIME_MIN >= self.end {
            LeaseAge::Over
        } else if now >= self.renew_at {
            LeaseAge::Due
        } else {
            LeaseAge::Good
        }
    }
}

impl<T: Clone + Send + Sync + 'static> ExpiringValue<T> {
    pub(super) fn new(source: Source<T>) -> Self {
        Self::with_clock(source, Box::new(SystemTime::now))
    }

    fn with_clock(source: Source<T>, now: Clock) -> Self {
        let leases = Mutex::new(Leases { lease: None, refused: None, ended: 0 });
        let inner = ExpiringValueState { source, now, leases, flight: Cache::with_entries_max(1) };
        Self { inner: Arc::new(inner), fetching: Mutex::default() }
    }

    /// Returns the valid value. Waits only if the cache has none. Must be called on a Tokio runtime.
    ///
    /// # Errors
    /// The error of the last attempt, after all retries; cached for a second.
    ///
    /// # Cancellation
    /// A fetch in progress continues.
    pub(super) async fn current(&self) -> Result<T, ApiError> {
        let before = self.inner.leases.lock().ended;
        match self.inner.unexpired() {
            Some((value, LeaseAge::Good)) => return Ok(value),
            Some((value, _)) => {
                self.spawn_fetch(before);
                return Ok(value);
            }
            None => self.spawn_fetch(before),
        }
        let inner = Arc::clone(&self.inner);
        self.inner.flight.fetch(&(), move || async move { inner.fetch_unless_newer(before).await }).await
    }

    /// Starts a fetch in a separate task, unless one is running or a fetch has finished since `before` was read.
    fn spawn_fetch(&self, before: u64) {
        let mut fetching = self.fetching.lock();
        if fetching.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let inner = Arc::clone(&self.inner);
        *fetching = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let _live = telemetry::tasks::guard("cloud-credentials");
            // The caller that started the task may have fetched the value in the meantime.
            let ended = inner.leases.lock().ended;
            let is_needed = match inner.unexpired() {
                Some((_, age)) => age == LeaseAge::Due,
                None => ended == before,
            };
            if is_needed {
                let making = Arc::clone(&inner);
                // The result is reported to waiting callers and in the log.
                let _ = inner
                    .flight
                    .fetch(&(), move || async move { making.fetch_unless_newer(ended).await })
                    .await;
            }
        })));
    }

    /// Drops the cached value if `is_refused` matches it. When many calls were refused with the same value, only the first triggers
    /// a fetch.
    pub(super) fn forget(&self, is_refused: impl Fn(&T) -> bool) {
        let mut leases = self.inner.leases.lock();
        if let Some(lease) = leases.lease.take_if(|lease| is_refused(&lease.value)) {
            leases.refused = Some(lease.value);
        }
    }
}

impl<T: Clone + Send + Sync + 'static> ExpiringValueState<T> {
    fn unexpired(&self) -> Option<(T, LeaseAge)> {
        let leases = self.leases.lock();
        let lease = leases.lease.as_ref()?;
        let age = lease.age((self.now)());
        (age != LeaseAge::Over).then(|| (lease.value.clone(), age))
    }

    /// Returns the value that another task has fetched since `before`, even if it has expired; otherwise fetches it.
    async fn fetch_unless_newer(&self, before: u64) -> Result<Fresh<T>, Failed<ApiError>> {
        let meanwhile = {
            let leases = self.leases.lock();
            leases.lease.as_ref().filter(|lease| lease.number > before).map(|lease| lease.value.clone())
        };
        match meanwhile {
            Some(value) => Ok(Fresh { value, lifetime: Duration::ZERO }),
            None => self.fetch_and_cache().await,
        }
    }

    /// Fetches once for all waiting tasks and caches the result until its expiry.
    async fn fetch_and_cache(&self) -> Result<Fresh<T>, Failed<ApiError>> {
        let tried = tokio::time::timeout(FETCH_LIMIT, self.tried()).await;
        let mut leases = self.leases.lock();
        leases.ended += 1;
        match tried.unwrap_or_else(|late| Err(ApiError::unreachable(&late))) {
            Ok((value, end)) => {
                leases.lease = Some(Lease::new(value.clone(), leases.ended, end, (self.now)()));
                leases.refused = None;
                Ok(Fresh { value, lifetime: Duration::ZERO })
            }
            Err(error) => {
                if let Some(lease) = &mut leases.lease {
                    lease.renew_at = (self.now)() + RENEW_RETRY;
                    tracing::warn!(%error, "the credentials could not be renewed; the current ones are used until they expire");
                }
                Err(Failed { error, lifetime: FAILURE_LIFETIME })
            }
        }
    }

    async fn tried(&self) -> Result<(T, SystemTime), ApiError> {
        let mut waits = RETRY.waits(retry::random);
        loop {
            let refused = self.leases.lock().refused.clone();
            let tried = tokio::time::timeout(TRY_LIMIT, (self.source)(refused)).await;
            let error = match tried.unwrap_or_else(|late| Err(ApiError::unreachable(&late))) {
                Ok(found) => return Ok(found),
                Err(error) => error,
            };
            match waits.next().filter(|_| error.verdict != Verdict::Final) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Err(error),
            }
        }
    }
}

impl<T> fmt::Debug for ExpiringValue<T> {
    /// Omits the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lasting")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use futures_util::FutureExt;
    use tokio::sync::Notify;

    use super::*;

    /// The next result of the source and the number of its requests. Time advances only when the test advances it.
    #[derive(Default)]
    struct World {
        says: Mutex<VecDeque<Result<(u32, u64), ApiError>>>,
        calls: Mutex<Vec<Option<u32>>>,
        now_s: Mutex<u64>,
        /// Signals that an attempt may end, in tests where attempts wait.
        may_end: Option<Notify>,
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn blip() -> ApiError {
        ApiError::of_status(503, "", "for a moment", None)
    }

    fn lasting(world: &Arc<World>) -> ExpiringValue<u32> {
        let (calls, clock) = (Arc::clone(world), Arc::clone(world));
        let source = move |refused| {
            let world = Arc::clone(&calls);
            async move {
                world.calls.lock().push(refused);
                if let Some(may_end) = &world.may_end {
                    may_end.notified().await;
                }
                let result = world.says.lock().pop_front().expect("asked no more often than it says");
                result.map(|(value, end)| (value, at(end)))
            }
            .boxed()
        };
        ExpiringValue::with_clock(Box::new(source), Box::new(move || at(*clock.now_s.lock())))
    }

    fn world(says: impl IntoIterator<Item = Result<(u32, u64), ApiError>>) -> Arc<World> {
        Arc::new(World { says: Mutex::new(says.into_iter().collect()), ..World::default() })
    }

    async fn until(condition: impl Fn() -> bool) {
        let waiting = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(3_600), waiting).await.expect("it comes true");
    }

    #[tokio::test(start_paused = true)]
    async fn value_is_renewed_in_the_background_before_expiry() {
        let world = world([Ok((1, 3_600)), Err(ApiError::malformed("no")), Ok((2, 9_000))]);
        let lasting = lasting(&world);
        assert_eq!(lasting.current().await.unwrap(), 1);
        *world.now_s.lock() = 3_299;
        assert_eq!(lasting.current().await.unwrap(), 1);
        assert_eq!(world.calls.lock().len(), 1, "it is not time yet");
        *world.now_s.lock() = 3_300;
        // The first poll returns the value: no caller waits for a renewal.
        assert_eq!(lasting.current().now_or_never().unwrap().unwrap(), 1);
        until(|| world.calls.lock().len() == 3).await;
        until(|| lasting.current().now_or_never().is_some_and(|now| now.unwrap() == 2)).await;
    }

    /// The fetch task and a waiting caller start together, and either may finish first.
    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_one_fetch_of_an_expired_value() {
        let world = world([Ok((1, 0)), Ok((2, 0))]);
        let lasting = lasting(&world);
        assert_eq!(lasting.current().await.unwrap(), 1);
        assert_eq!(lasting.inner.fetch_unless_newer(0).await.unwrap().value, 1);
        assert_eq!(world.calls.lock().len(), 1);
        assert_eq!(lasting.current().await.unwrap(), 2, "who comes later has another");
    }

    #[tokio::test(start_paused = true)]
    async fn value_is_served_until_expiry_when_renewal_fails() {
        let denied = || ApiError::of_status(403, "", "", None);
        let world = world([Ok((1, 3_600)), Err(denied()), Err(denied())]);
        let lasting = lasting(&world);
        lasting.current().await.unwrap();
        *world.now_s.lock() = 3_400;
        assert_eq!(lasting.current().await.unwrap(), 1);
        until(|| world.calls.lock().len() == 2).await;
        until(|| lasting.fetching.lock().as_ref().is_some_and(AbortOnDropHandle::is_finished)).await;
        // No new attempt is made for a while, and the old value is returned.
        for now_s in [3_401, 3_429] {
            *world.now_s.lock() = now_s;
            assert_eq!(lasting.current().await.unwrap(), 1);
            tokio::task::yield_now().await;
            assert_eq!(world.calls.lock().len(), 2);
        }
        tokio::time::sleep(FAILURE_LIFETIME).await;
        *world.now_s.lock() = 3_590;
        assert!(lasting.current().await.unwrap_err().denied);
        assert_eq!(world.calls.lock().len(), 3, "what no try changes is tried once");
        assert!(lasting.current().await.unwrap_err().denied);
        assert_eq!(world.calls.lock().len(), 3, "and remembered for a moment");
    }

    #[tokio::test(start_paused = true)]
    async fn transient_failures_are_retried_once_for_all_waiting_callers() {
        let world = world([Err(blip()), Err(blip()), Ok((1, 3_600))]);
        let lasting = Arc::new(lasting(&world));
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let lasting = Arc::clone(&lasting);
                tokio::spawn(async move { lasting.current().await })
            })
            .collect();
        for one in waiting {
            assert_eq!(one.await.unwrap().unwrap(), 1);
        }
        assert_eq!(world.calls.lock().len(), 3);
    }

    /// The caller that started the fetch stops waiting. The fetch continues, and the next caller gets its result.
    #[tokio::test(start_paused = true)]
    async fn fetch_continues_after_the_caller_gives_up() {
        let world = Arc::new(World {
            says: Mutex::new([Ok((1, 3_600))].into()),
            may_end: Some(Notify::new()),
            ..World::default()
        });
        let lasting = lasting(&world);
        assert!(tokio::time::timeout(Duration::from_millis(300), lasting.current()).await.is_err());
        assert_eq!(world.calls.lock().len(), 1);
        world.may_end.as_ref().unwrap().notify_one();
        until(|| lasting.inner.unexpired().is_some()).await;
        assert_eq!(lasting.current().now_or_never().unwrap().unwrap(), 1);
        assert_eq!(world.calls.lock().len(), 1, "nobody asked again");
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_value_is_fetched_again_only_once() {
        let world = world([Ok((1, 3_600)), Ok((2, 3_600))]);
        let lasting = lasting(&world);
        lasting.current().await.unwrap();
        (0..10).for_each(|_| lasting.forget(|value| *value == 1));
        assert_eq!(lasting.current().await.unwrap(), 2);
        // A caller reports late that the first value was refused.
        lasting.forget(|value| *value == 1);
        assert_eq!(lasting.current().await.unwrap(), 2);
        assert_eq!(*world.calls.lock(), [None, Some(1)]);
    }

    #[test]
    fn short_lived_values_are_renewed_in_their_last_quarter() {
        let lease = Lease::new((), 1, at(1_100), at(1_000));
        for (now, age) in [
            (1_000, LeaseAge::Good),
            (1_074, LeaseAge::Good),
            (1_075, LeaseAge::Due),
            (1_089, LeaseAge::Due),
            (1_090, LeaseAge::Over),
            (2_000, LeaseAge::Over),
        ] {
            assert_eq!(lease.age(at(now)), age, "{now}");
        }
        assert_eq!(Lease::new((), 1, at(1), at(1_000)).age(at(1_000)), LeaseAge::Over);
    }
}
