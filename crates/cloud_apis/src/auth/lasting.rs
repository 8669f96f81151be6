//! Credentials that end: kept until then, fetched once for all who wait, and again well before their end.
//!
//! They are fetched in a task of their own: anyone who waits may go away, by its deadline say, and the next finds what it began. While
//! those that are kept are good nobody waits.

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

/// With less left than this they are not begun with: longer than a call takes.
const SPARE: Duration = Duration::from_secs(10);
/// How long before their end they are fetched again, or a quarter of their life where that is less. Those who give them have others
/// five minutes before the end, and not sooner.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// Between two tries to renew what is good yet.
const RENEW_AGAIN: Duration = Duration::from_secs(30);
/// For one try: some are given by a program, or by asking one service after another.
const TRY_LIMIT: Duration = Duration::from_secs(20);
/// For all tries.
const FETCH_LIMIT: Duration = Duration::from_secs(60);
/// Tries after the first one, where a failure may pass.
const RETRY: Policy = Policy { base: Duration::from_millis(200), cap: Duration::from_secs(2), retries: 6 };
/// How long a failure is remembered, so that a crowd that asks is not a crowd there.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// A fetched value and its expiry.
pub(super) type Fetching<T> = BoxFuture<'static, Result<(T, SystemTime), ApiError>>;
/// One try to fetch; given is what was refused last, of which a source may have kept a copy.
pub(super) type Source<T> = Box<dyn Fn(Option<T>) -> Fetching<T> + Send + Sync>;
type Clock = Box<dyn Fn() -> SystemTime + Send + Sync>;

/// A value that expires, and its source.
pub(super) struct Lasting<T> {
    inner: Arc<LastingState<T>>,
    /// Fetches. Ends with this.
    fetching: Mutex<Option<AbortOnDropHandle<()>>>,
}

struct LastingState<T> {
    source: Source<T>,
    now: Clock,
    /// Never held over a wait.
    kept: Mutex<Leases<T>>,
    flight: Cache<(), T, ApiError>,
}

struct Leases<T> {
    lease: Option<Lease<T>>,
    /// Refused by the service before its end.
    refused: Option<T>,
    /// How often it was fetched, or not.
    ended: u64,
}

struct Lease<T> {
    value: T,
    /// Number of fetches, failed ones included, up to this one.
    number: u64,
    end: SystemTime,
    renew_at: SystemTime,
}

/// The age of a lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LeaseAge {
    Good,
    /// Good, and to be renewed.
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
        if now + SPARE >= self.end {
            LeaseAge::Over
        } else if now >= self.renew_at {
            LeaseAge::Due
        } else {
            LeaseAge::Good
        }
    }
}

impl<T: Clone + Send + Sync + 'static> Lasting<T> {
    pub(super) fn new(source: Source<T>) -> Self {
        Self::with_clock(source, Box::new(SystemTime::now))
    }

    fn with_clock(source: Source<T>, now: Clock) -> Self {
        let kept = Mutex::new(Leases { lease: None, refused: None, ended: 0 });
        let inner = LastingState { source, now, kept, flight: Cache::with_entries(1) };
        Self { inner: Arc::new(inner), fetching: Mutex::default() }
    }

    /// What is good now. Waits for it only where nothing is. Must be called on a runtime.
    ///
    /// # Errors
    /// The last try's, after as many as help; remembered for a second.
    ///
    /// # Cancellation
    /// What is under way goes on.
    pub(super) async fn current(&self) -> Result<T, ApiError> {
        let before = self.inner.kept.lock().ended;
        match self.inner.good() {
            Some((value, LeaseAge::Good)) => return Ok(value),
            Some((value, _)) => {
                self.fetch_aside(before);
                return Ok(value);
            }
            None => self.fetch_aside(before),
        }
        let inner = Arc::clone(&self.inner);
        self.inner.flight.fetch(&(), move || async move { inner.fetched_since(before).await }).await
    }

    /// Fetches in a task of its own, one at a time, unless it has been since it had been so often.
    fn fetch_aside(&self, before: u64) {
        let mut fetching = self.fetching.lock();
        if fetching.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let inner = Arc::clone(&self.inner);
        *fetching = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let _live = telemetry::tasks::guard("cloud-credentials");
            // Anyone who began this may have fetched it meanwhile.
            let ended = inner.kept.lock().ended;
            let is_needed = match inner.good() {
                Some((_, standing)) => standing == LeaseAge::Due,
                None => ended == before,
            };
            if is_needed {
                let making = Arc::clone(&inner);
                // Told to those who wait, and in the log.
                let _ =
                    inner.flight.fetch(&(), move || async move { making.fetched_since(ended).await }).await;
            }
        })));
    }

    /// Another one from now on, where what is kept is what was refused: of many whose calls were refused with one, the first
    /// has the next fetched.
    pub(super) fn forget(&self, is_refused: impl Fn(&T) -> bool) {
        let mut kept = self.inner.kept.lock();
        if let Some(lease) = kept.lease.take_if(|lease| is_refused(&lease.value)) {
            kept.refused = Some(lease.value);
        }
    }
}

impl<T: Clone + Send + Sync + 'static> LastingState<T> {
    fn good(&self) -> Option<(T, LeaseAge)> {
        let kept = self.kept.lock();
        let lease = kept.lease.as_ref()?;
        let standing = lease.age((self.now)());
        (standing != LeaseAge::Over).then(|| (lease.value.clone(), standing))
    }

    /// The value, if another task fetched one since `before`, even if it expired; otherwise fetches it.
    async fn fetched_since(&self, before: u64) -> Result<Fresh<T>, Failed<ApiError>> {
        let meanwhile = {
            let kept = self.kept.lock();
            kept.lease.as_ref().filter(|lease| lease.number > before).map(|lease| lease.value.clone())
        };
        match meanwhile {
            Some(value) => Ok(Fresh { value, lifetime: Duration::ZERO }),
            None => self.fetched().await,
        }
    }

    /// Fetches once for all waiting tasks; caches the result until its expiry.
    async fn fetched(&self) -> Result<Fresh<T>, Failed<ApiError>> {
        let tried = tokio::time::timeout(FETCH_LIMIT, self.tried()).await;
        let mut kept = self.kept.lock();
        kept.ended += 1;
        match tried.unwrap_or_else(|late| Err(ApiError::unreachable(&late))) {
            Ok((value, end)) => {
                kept.lease = Some(Lease::new(value.clone(), kept.ended, end, (self.now)()));
                kept.refused = None;
                Ok(Fresh { value, lifetime: Duration::ZERO })
            }
            Err(error) => {
                if let Some(lease) = &mut kept.lease {
                    lease.renew_at = (self.now)() + RENEW_AGAIN;
                    tracing::warn!(%error, "credentials are not renewed yet; those that are kept serve until their end");
                }
                Err(Failed { error, lifetime: FAILED_FOR })
            }
        }
    }

    async fn tried(&self) -> Result<(T, SystemTime), ApiError> {
        let mut waits = RETRY.waits(retry::random);
        loop {
            let refused = self.kept.lock().refused.clone();
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

impl<T> fmt::Debug for Lasting<T> {
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

    /// The source's next answer, and its requests; time moves only when the test moves it.
    #[derive(Default)]
    struct World {
        says: Mutex<VecDeque<Result<(u32, u64), ApiError>>>,
        asked: Mutex<Vec<Option<u32>>>,
        now_s: Mutex<u64>,
        /// Given once a try may end, where tries wait for it.
        may_end: Option<Notify>,
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn blip() -> ApiError {
        ApiError::of_status(503, "", "for a moment", None)
    }

    fn lasting(world: &Arc<World>) -> Lasting<u32> {
        let (asked, clock) = (Arc::clone(world), Arc::clone(world));
        let source = move |refused| {
            let world = Arc::clone(&asked);
            async move {
                world.asked.lock().push(refused);
                if let Some(may_end) = &world.may_end {
                    may_end.notified().await;
                }
                let said = world.says.lock().pop_front().expect("asked no more often than it says");
                said.map(|(value, end)| (value, at(end)))
            }
            .boxed()
        };
        Lasting::with_clock(Box::new(source), Box::new(move || at(*clock.now_s.lock())))
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
    async fn it_is_renewed_before_its_end_and_nobody_waits() {
        let world = world([Ok((1, 3_600)), Err(ApiError::malformed("no")), Ok((2, 9_000))]);
        let lasting = lasting(&world);
        assert_eq!(lasting.current().await.unwrap(), 1);
        *world.now_s.lock() = 3_299;
        assert_eq!(lasting.current().await.unwrap(), 1);
        assert_eq!(world.asked.lock().len(), 1, "it is not time yet");
        *world.now_s.lock() = 3_300;
        // The first poll has it: what is renewed is waited for by nobody.
        assert_eq!(lasting.current().now_or_never().unwrap().unwrap(), 1);
        until(|| world.asked.lock().len() == 3).await;
        until(|| lasting.current().now_or_never().is_some_and(|now| now.unwrap() == 2)).await;
    }

    /// The task of its own and who waits for it begin together, and either may be done before the other looks.
    #[tokio::test(start_paused = true)]
    async fn what_is_over_at_once_is_fetched_once_by_those_who_begin_together() {
        let world = world([Ok((1, 0)), Ok((2, 0))]);
        let lasting = lasting(&world);
        assert_eq!(lasting.current().await.unwrap(), 1);
        assert_eq!(lasting.inner.fetched_since(0).await.unwrap().value, 1);
        assert_eq!(world.asked.lock().len(), 1);
        assert_eq!(lasting.current().await.unwrap(), 2, "who comes later has another");
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_renewed_serves_until_its_end() {
        let denied = || ApiError::of_status(403, "", "", None);
        let world = world([Ok((1, 3_600)), Err(denied()), Err(denied())]);
        let lasting = lasting(&world);
        lasting.current().await.unwrap();
        *world.now_s.lock() = 3_400;
        assert_eq!(lasting.current().await.unwrap(), 1);
        until(|| world.asked.lock().len() == 2).await;
        until(|| lasting.fetching.lock().as_ref().is_some_and(AbortOnDropHandle::is_finished)).await;
        // It is let be for a while, and serves.
        for now_s in [3_401, 3_429] {
            *world.now_s.lock() = now_s;
            assert_eq!(lasting.current().await.unwrap(), 1);
            tokio::task::yield_now().await;
            assert_eq!(world.asked.lock().len(), 2);
        }
        tokio::time::sleep(FAILED_FOR).await;
        *world.now_s.lock() = 3_590;
        assert!(lasting.current().await.unwrap_err().denied);
        assert_eq!(world.asked.lock().len(), 3, "what no try changes is tried once");
        assert!(lasting.current().await.unwrap_err().denied);
        assert_eq!(world.asked.lock().len(), 3, "and remembered for a moment");
    }

    #[tokio::test(start_paused = true)]
    async fn a_blip_is_gone_over_and_many_who_wait_are_one() {
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
        assert_eq!(world.asked.lock().len(), 3);
    }

    /// The one who began goes away: what it began goes on, and is there for the next.
    #[tokio::test(start_paused = true)]
    async fn who_goes_away_leaves_what_it_began() {
        let world = Arc::new(World {
            says: Mutex::new([Ok((1, 3_600))].into()),
            may_end: Some(Notify::new()),
            ..World::default()
        });
        let lasting = lasting(&world);
        assert!(tokio::time::timeout(Duration::from_millis(300), lasting.current()).await.is_err());
        assert_eq!(world.asked.lock().len(), 1);
        world.may_end.as_ref().unwrap().notify_one();
        until(|| lasting.inner.good().is_some()).await;
        assert_eq!(lasting.current().now_or_never().unwrap().unwrap(), 1);
        assert_eq!(world.asked.lock().len(), 1, "nobody asked again");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_refused_is_asked_for_once_and_the_source_is_told() {
        let world = world([Ok((1, 3_600)), Ok((2, 3_600))]);
        let lasting = lasting(&world);
        lasting.current().await.unwrap();
        (0..10).for_each(|_| lasting.forget(|value| *value == 1));
        assert_eq!(lasting.current().await.unwrap(), 2);
        // Anyone who was refused with the first one, and says so late.
        lasting.forget(|value| *value == 1);
        assert_eq!(lasting.current().await.unwrap(), 2);
        assert_eq!(*world.asked.lock(), [None, Some(1)]);
    }

    #[test]
    fn short_lives_are_renewed_in_their_last_quarter() {
        let lease = Lease::new((), 1, at(1_100), at(1_000));
        for (now, standing) in [
            (1_000, LeaseAge::Good),
            (1_074, LeaseAge::Good),
            (1_075, LeaseAge::Due),
            (1_089, LeaseAge::Due),
            (1_090, LeaseAge::Over),
            (2_000, LeaseAge::Over),
        ] {
            assert_eq!(lease.age(at(now)), standing, "{now}");
        }
        assert_eq!(Lease::new((), 1, at(1), at(1_000)).age(at(1_000)), LeaseAge::Over);
    }
}
