//! A call pool for one server: limits concurrency and rate, and adapts to throttling responses.
//!
//! A concurrency limit alone does not limit the rate. A [`Pool`] therefore has permits (as in [`crate::budget`]) and a [`Pacer`]
//! for each operation. [`Pool::call`] waits for its turn, calls, learns from the response and retries where that can help, until
//! the caller's deadline.
//!
//! Permits are always acquired in this order: a permit of this pool, a token of the operation, a permit of the total budget. A
//! caller that waits for a slow or throttled server therefore holds nothing that other servers need.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use shared::Shared;
use tokio::time::Instant;

use crate::Deadline;
use crate::budget::{AdaptiveLimit, Gauges};
use crate::rate::{Pace, Pacer, PacerCounts, SendPermit};
use crate::retry::{Policy, random};

/// Retry policy of calls that failed temporarily.
const RETRY_POLICY: Policy =
    Policy { base: Duration::from_millis(200), cap: Duration::from_secs(5), retries: 3 };

/// Maximum operations with their own rate limit in one pool. Further operations share one pacer. The names of operations are
/// constants in the program.
const OPERATIONS_MAX: usize = 64;

/// Classification of a response: throttled, temporary failure or final.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The server throttles: HTTP 429, `ThrottlingException`, `RESOURCE_EXHAUSTED` and similar. It may request a delay.
    Throttled {
        /// Delay from `Retry-After`, if present.
        retry_after: Option<Duration>,
    },
    /// The failure is temporary: a retry may succeed.
    Transient,
    /// The response is final: a retry would return the same.
    Final,
}

/// An error that can be classified for retries.
pub trait ClassifyError {
    /// Classifies the error.
    fn verdict(&self) -> Verdict;
}

/// Reason why a call through a pool failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError<E: std::error::Error + 'static> {
    /// The server returned an error, after all useful retries.
    #[error("{operation} failed")]
    Failed {
        /// Name of the operation that failed.
        operation: &'static str,
        /// The last error.
        #[source]
        source: E,
    },
    /// The deadline passed while the call waited for a permit or for the rate limit: the server's quota is too low for the load.
    /// Raise the deadline or send fewer requests.
    #[error("{operation} timed out in the queue of {pool} ({throttled} requests were throttled)")]
    NotSent {
        /// Name of the operation that waited.
        operation: &'static str,
        /// Name of the pool in which the call waited.
        pool: Arc<str>,
        /// Number of throttling responses to this operation so far.
        throttled: u64,
    },
    /// No attempt got a response within the timeout of one call.
    #[error("{operation} got no answer within {limit:?}")]
    Silent {
        /// Name of the operation that got no response.
        operation: &'static str,
        /// Timeout of one call.
        limit: Duration,
    },
}

/// Concurrency and timeout of a call pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Maximum concurrent calls to the server.
    pub concurrency: usize,
    /// Timeout of one call.
    pub call_limit: Duration,
}

/// A call pool for one server. Clones share it.
#[derive(Clone)]
pub struct Pool(Shared<PoolState>);

struct PoolState {
    name: Arc<str>,
    permits: AdaptiveLimit,
    whole: AdaptiveLimit,
    call_limit: Duration,
    /// Start of the pacers' clock, which counts microseconds.
    began: Instant,
    operation_queues: Mutex<HashMap<&'static str, Arc<OperationQueue>>>,
    calls: AtomicU64,
    failed: AtomicU64,
}

/// Pacer of one operation, and the fair queue of its callers. All callers share one timer.
struct OperationQueue {
    queue: tokio::sync::Mutex<()>,
    pacer: Mutex<Pacer>,
}

/// Metrics of a pool: permits, calls and operations.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolGauges {
    /// Name that was given to [`Pool::new`].
    pub name: Arc<str>,
    /// Metrics of the pool's permits.
    pub permits: Gauges,
    /// Calls made, retries included.
    pub calls: u64,
    /// Failed calls, without throttled ones.
    pub failed: u64,
    /// Metrics of each operation with its name, in the order of the names.
    pub operations: Vec<(&'static str, PacerCounts)>,
}

impl Pool {
    /// Creates a pool called `name` below the total budget `whole`.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, options: PoolOptions, whole: AdaptiveLimit) -> Self {
        Self(Shared::new(PoolState {
            name: name.into(),
            permits: AdaptiveLimit::new(options.concurrency),
            whole,
            call_limit: options.call_limit,
            began: Instant::now(),
            operation_queues: Mutex::default(),
            calls: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }))
    }

    /// Returns the name that was given to [`Self::new`].
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Calls `operation` until it has a final response. The rate limit is the one given with the first call of the operation.
    ///
    /// A throttled call is retried after the requested delay, as often as the deadline allows. A temporary failure is retried a few
    /// times with exponential backoff and jitter, so that calls that failed together are not retried together.
    ///
    /// # Errors
    /// [`CallError`].
    ///
    /// # Cancellation
    /// Dropping the future drops the call in progress and releases its permits.
    pub async fn call<T, E, F>(
        &self,
        operation: &'static str,
        pace: Pace,
        deadline: Deadline,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, CallError<E>>
    where
        F: Future<Output = Result<T, E>>,
        E: ClassifyError + std::error::Error + 'static,
    {
        let operation_queue = self.operation_queue(operation, pace);
        let mut waits = RETRY_POLICY.waits(random);
        loop {
            let waiting = deadline.bound(self.permits(&operation_queue)).await;
            let Ok((permits, send_permit)) = waiting else {
                let throttled = operation_queue.pacer.lock().pacer_counts(self.now_us()).throttled;
                return Err(CallError::NotSent { operation, pool: self.0.name.clone(), throttled });
            };
            self.0.calls.fetch_add(1, Relaxed);
            let answer = deadline.child(self.0.call_limit).bound(attempt()).await;
            drop(permits);
            let failure = match answer {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(error)) => Some(error),
                Err(_) => None,
            };
            let verdict = failure.as_ref().map_or(Verdict::Transient, ClassifyError::verdict);
            if let Verdict::Throttled { retry_after } = verdict {
                operation_queue.pacer.lock().throttled(self.now_us(), send_permit, retry_after);
                continue;
            }
            self.0.failed.fetch_add(1, Relaxed);
            let wait = if verdict == Verdict::Final { None } else { waits.next() };
            let wait = wait.filter(|wait| *wait < deadline.remaining());
            match (wait, failure) {
                (Some(wait), _) => tokio::time::sleep(wait).await,
                (None, Some(source)) => return Err(CallError::Failed { operation, source }),
                (None, None) => return Err(CallError::Silent { operation, limit: self.0.call_limit }),
            }
        }
    }

    /// Waits for a permit of the pool, for the rate limit of the operation, and for a permit of the total budget.
    async fn permits(
        &self,
        operation_queue: &OperationQueue,
    ) -> ((crate::budget::Permit, crate::budget::Permit), SendPermit) {
        let pool_permit = self.0.permits.acquire().await;
        let _first_in_line = operation_queue.queue.lock().await;
        loop {
            let wait = operation_queue.pacer.lock().wait(self.now_us());
            if wait > 0 {
                tokio::time::sleep(micros(wait)).await;
                continue;
            }
            let whole = self.0.whole.acquire().await;
            // While the call waited for the total budget, the server may have requested a delay.
            if let Ok(send_permit) = operation_queue.pacer.lock().try_acquire(self.now_us()) {
                return ((pool_permit, whole), send_permit);
            }
        }
    }

    fn operation_queue(&self, operation: &'static str, pace: Pace) -> Arc<OperationQueue> {
        let mut operation_queues = self.0.operation_queues.lock();
        let key = if operation_queues.len() < OPERATIONS_MAX || operation_queues.contains_key(operation) {
            operation
        } else {
            "other"
        };
        let make = || {
            Arc::new(OperationQueue {
                queue: tokio::sync::Mutex::default(),
                pacer: Mutex::new(Pacer::new(pace)),
            })
        };
        operation_queues.entry(key).or_insert_with(make).clone()
    }

    fn now_us(&self) -> i64 {
        i64::try_from(self.0.began.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    /// Returns the metrics of permits, calls and operations.
    #[must_use]
    pub fn gauges(&self) -> PoolGauges {
        let now = self.now_us();
        let mut operations: Vec<_> = self
            .0
            .operation_queues
            .lock()
            .iter()
            .map(|(name, operation_queue)| (*name, operation_queue.pacer.lock().pacer_counts(now)))
            .collect();
        operations.sort_unstable_by_key(|(name, _)| *name);
        PoolGauges {
            name: self.0.name.clone(),
            permits: self.0.permits.gauges(),
            calls: self.0.calls.load(Relaxed),
            failed: self.0.failed.load(Relaxed),
            operations,
        }
    }
}

fn micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::rate::Rate;

    #[derive(Debug, thiserror::Error)]
    #[error("{0:?}")]
    struct Judgement(Verdict);

    impl ClassifyError for Judgement {
        fn verdict(&self) -> Verdict {
            self.0
        }
    }

    const FAST: Pace = Pace { per_second: None, per_minute: None };

    fn pool(concurrency: usize, whole: &AdaptiveLimit) -> Pool {
        let options = PoolOptions { concurrency, call_limit: Duration::from_secs(5) };
        Pool::new("test", options, whole.clone())
    }

    async fn ok() -> Result<(), Judgement> {
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn rate_limit_holds_for_concurrent_calls() {
        let pool = pool(32, &AdaptiveLimit::new(256));
        let began = Instant::now();
        let pace = Pace { per_second: Some(Rate::per_second(10)), per_minute: None };
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let pool = pool.clone();
            calls.spawn(async move {
                pool.call("list", pace, Deadline::within(Duration::from_secs(60)), ok).await
            });
        }
        assert!(calls.join_all().await.iter().all(Result::is_ok));
        let took = began.elapsed();
        assert!((Duration::from_millis(4_890)..Duration::from_secs(5)).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn throttled_call_is_retried_after_retry_after() {
        let pool = pool(4, &AdaptiveLimit::new(256));
        let (began, tries) = (Instant::now(), AtomicUsize::new(0));
        let found = pool
            .call("list", FAST, Deadline::within(Duration::from_secs(60)), || async {
                match tries.fetch_add(1, Relaxed) {
                    0 => Err(Judgement(Verdict::Throttled { retry_after: Some(Duration::from_secs(7)) })),
                    _ => Ok("found"),
                }
            })
            .await;
        assert_eq!(found.unwrap(), "found");
        assert!(began.elapsed() >= Duration::from_secs(7), "{:?}", began.elapsed());
        let gauges = pool.gauges();
        assert_eq!((gauges.calls, gauges.failed, gauges.operations[0].1.throttled), (2, 0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn throttled_pool_does_not_block_other_pools() {
        let whole = AdaptiveLimit::new(4);
        let (busy, free) = (pool(64, &whole), pool(4, &whole));
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let busy = busy.clone();
            calls.spawn(async move {
                let never = || async { Err::<(), _>(Judgement(Verdict::Throttled { retry_after: None })) };
                busy.call("list", FAST, Deadline::within(Duration::from_secs(30)), never).await
            });
        }
        tokio::time::advance(Duration::from_secs(10)).await;
        let began = Instant::now();
        free.call("list", FAST, Deadline::within(Duration::from_secs(5)), ok).await.unwrap();
        assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
        for ended in calls.join_all().await {
            assert!(matches!(ended, Err(CallError::NotSent { throttled: 1.., .. })), "{ended:?}");
        }
        assert_eq!(whole.gauges().in_flight, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn transient_failures_are_retried_and_final_ones_are_not() {
        for (verdict, calls) in
            [(Verdict::Transient, 1 + u64::from(RETRY_POLICY.retries)), (Verdict::Final, 1)]
        {
            let pool = pool(4, &AdaptiveLimit::new(256));
            let fails = || async move { Err::<(), _>(Judgement(verdict)) };
            let ended = pool.call("get", FAST, Deadline::within(Duration::from_secs(60)), fails).await;
            assert!(matches!(ended, Err(CallError::Failed { operation: "get", .. })), "{ended:?}");
            assert_eq!((pool.gauges().calls, pool.gauges().failed), (calls, calls));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_call_times_out_and_releases_its_permit() {
        let pool = pool(1, &AdaptiveLimit::new(256));
        let hangs = || std::future::pending::<Result<(), Judgement>>();
        let ended = pool.call("get", FAST, Deadline::within(Duration::from_secs(600)), hangs).await;
        assert!(matches!(ended, Err(CallError::Silent { .. })), "{ended:?}");
        assert_eq!(pool.gauges().permits.in_flight, 0);
        pool.call("get", FAST, Deadline::within(Duration::from_secs(1)), ok).await.unwrap();
    }
}
