//! Tests of `flight::Cache`. The tests advance a paused clock.

// Tests may panic: a panic fails the test.
#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use flight::{Cache, Counts, Failed, Fresh};
use futures_util::FutureExt;
use proptest::prelude::*;
use tokio::sync::Notify;
use tokio::task::JoinSet;

type Numbers = Cache<&'static str, u64, &'static str>;
type Made = Result<Fresh<u64>, Failed<&'static str>>;

fn cache() -> Numbers {
    Cache::with_entries_max(100)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn fresh(value: u64, life: u64) -> Made {
    Ok(Fresh { value, lifetime: seconds(life) })
}

fn failed(error: &'static str, life: u64) -> Made {
    Err(Failed { error, lifetime: seconds(life) })
}

async fn fetch_key(cache: &Numbers, made: Made) -> Result<u64, &'static str> {
    cache.fetch(&"key", move || async move { made }).await
}

#[tokio::test(start_paused = true)]
async fn value_expires_after_its_lifetime() {
    let cache = cache();
    assert_eq!(fetch_key(&cache, fresh(1, 10)).await, Ok(1));
    tokio::time::advance(seconds(9)).await;
    assert_eq!(fetch_key(&cache, fresh(2, 10)).await, Ok(1));
    tokio::time::advance(seconds(1)).await;
    assert_eq!(cache.get_stale(&"key").map(|cached| cached.outcome), Some(Ok(1)));
    assert!(cache.get(&"key").is_none(), "no longer true");
    assert_eq!(fetch_key(&cache, fresh(2, 10)).await, Ok(2));
    assert_eq!(cache.counts(), Counts { hits: 1, misses: 2, joined: 0 });
}

#[tokio::test(start_paused = true)]
async fn failure_expires_after_its_lifetime() {
    let cache = cache();
    assert_eq!(fetch_key(&cache, failed("down", 2)).await, Err("down"));
    assert_eq!(fetch_key(&cache, fresh(1, 10)).await, Err("down"));
    tokio::time::advance(seconds(2)).await;
    assert_eq!(fetch_key(&cache, fresh(1, 10)).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn zero_lifetime_is_not_cached_and_maximum_lifetime_does_not_overflow() {
    let cache = cache();
    assert_eq!(fetch_key(&cache, fresh(1, 0)).await, Ok(1));
    assert_eq!(fetch_key(&cache, fresh(2, u64::MAX)).await, Ok(2));
    assert_eq!(fetch_key(&cache, fresh(3, 1)).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn concurrent_fetches_of_one_key_run_once() {
    let (cache, runs, gate) = (cache(), Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let mut callers = JoinSet::new();
    for _ in 0..1_000 {
        let (cache, runs, gate) = (cache.clone(), runs.clone(), gate.clone());
        callers.spawn(async move {
            let make = move || async move {
                runs.fetch_add(1, SeqCst);
                gate.notified().await;
                fresh(7, 0)
            };
            cache.fetch(&"key", make).await
        });
    }
    while cache.counts().joined < 999 {
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    assert!(callers.join_all().await.into_iter().all(|result| result == Ok(7)));
    assert_eq!(runs.load(SeqCst), 1);
    assert_eq!(cache.under_way(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fetches_of_one_key_never_run_concurrently_on_many_threads() {
    let cache: Cache<u64, u64, ()> = Cache::with_entries_max(8);
    let now: Arc<[AtomicUsize; 4]> = Arc::default();
    let mut callers = JoinSet::new();
    for n in 0..4_000_u64 {
        let (cache, now) = (cache.clone(), now.clone());
        callers.spawn(async move {
            let key = n % 4;
            let make = move || async move {
                assert_eq!(now[key as usize].fetch_add(1, SeqCst), 0, "two runs at once");
                tokio::task::yield_now().await;
                now[key as usize].fetch_sub(1, SeqCst);
                Ok(Fresh { value: key, lifetime: Duration::ZERO })
            };
            assert_eq!(cache.fetch(&key, make).await, Ok(key));
        });
    }
    callers.join_all().await;
    assert_eq!(cache.under_way(), 0);
}

#[tokio::test(start_paused = true)]
async fn cancelled_caller_does_not_cancel_the_run_for_others() {
    for maker_leaves in [true, false] {
        let (cache, gate) = (cache(), Arc::new(Notify::new()));
        let make = |gate: Arc<Notify>| {
            move || async move {
                gate.notified().await;
                fresh(7, 10)
            }
        };
        let mut maker = cache.fetch(&"key", make(gate.clone())).boxed();
        assert!(maker.as_mut().now_or_never().is_none());
        let mut joiner = cache.fetch(&"key", || async { panic!("not needed") }).boxed();
        assert!(joiner.as_mut().now_or_never().is_none());
        let stays = if maker_leaves {
            drop(maker);
            joiner
        } else {
            drop(joiner);
            maker
        };
        gate.notify_one();
        assert_eq!(stays.await, Ok(7), "maker leaves: {maker_leaves}");
    }
}

#[tokio::test(start_paused = true)]
async fn run_is_cancelled_with_its_last_caller() {
    struct Cancelled(Arc<AtomicUsize>);
    impl Drop for Cancelled {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let (cache, drops) = (cache(), Arc::new(AtomicUsize::new(0)));
    let work = Cancelled(drops.clone());
    let mut maker = cache
        .fetch(&"key", move || async move {
            let _work = work;
            pending().await
        })
        .boxed();
    let mut joiner = cache.fetch(&"key", pending::<Made>).boxed();
    assert!(maker.as_mut().now_or_never().is_none() && joiner.as_mut().now_or_never().is_none());
    drop(maker);
    assert_eq!((drops.load(SeqCst), cache.under_way()), (0, 1));
    drop(joiner);
    assert_eq!((drops.load(SeqCst), cache.under_way()), (1, 0));
    assert_eq!(fetch_key(&cache, fresh(1, 1)).await, Ok(1), "the key is free");
}

#[tokio::test(start_paused = true)]
async fn panic_reaches_only_its_caller_and_joiners_retry() {
    let (cache, gate) = (cache(), Arc::new(Notify::new()));
    let (panicking, release) = (cache.clone(), gate.clone());
    let make = move || async move {
        release.notified().await;
        panic!("on purpose")
    };
    let maker = tokio::spawn(async move { panicking.fetch(&"key", make).await });
    while cache.under_way() == 0 {
        tokio::task::yield_now().await;
    }
    let joining = cache.clone();
    let joiner = tokio::spawn(async move { fetch_key(&joining, fresh(5, 1)).await });
    while cache.counts().joined == 0 {
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    assert!(maker.await.unwrap_err().is_panic());
    assert_eq!(joiner.await.unwrap(), Ok(5), "tried again with its own work");
    assert_eq!(cache.under_way(), 0);
}

#[tokio::test(start_paused = true)]
async fn refresh_replaces_a_valid_value_without_blocking_readers() {
    let (cache, gate) = (cache(), Arc::new(Notify::new()));
    assert_eq!(fetch_key(&cache, fresh(1, 10)).await, Ok(1));
    let release = gate.clone();
    let make = move || async move {
        release.notified().await;
        fresh(2, 10)
    };
    let mut refresh = cache.refresh(&"key", make).boxed();
    assert!(refresh.as_mut().now_or_never().is_none());
    assert_eq!(fetch_key(&cache, fresh(9, 9)).await, Ok(1), "nobody waits for it");
    assert_eq!(cache.refresh(&"key", || async { fresh(3, 9) }).await, None, "one is under way");
    gate.notify_one();
    assert_eq!(refresh.await, Some(Ok(2)));
    assert_eq!(fetch_key(&cache, fresh(9, 9)).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn failed_refresh_keeps_the_valid_value() {
    let cache = cache();
    assert_eq!(fetch_key(&cache, fresh(1, 10)).await, Ok(1));
    assert_eq!(cache.refresh(&"key", || async { failed("down", 9) }).await, Some(Err("down")));
    assert_eq!(fetch_key(&cache, fresh(9, 9)).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn invalidated_run_is_not_cached() {
    let (cache, gate) = (cache(), Arc::new(Notify::new()));
    let release = gate.clone();
    let make = move || async move {
        release.notified().await;
        fresh(1, 10)
    };
    let mut old = cache.fetch(&"key", make).boxed();
    assert!(old.as_mut().now_or_never().is_none());
    cache.invalidate(&"key");
    gate.notify_one();
    assert_eq!(old.await, Ok(1), "those who waited have it");
    assert_eq!(fetch_key(&cache, fresh(2, 10)).await, Ok(2));
    cache.invalidate(&"key");
    assert!(cache.get_stale(&"key").is_none());
}

#[tokio::test(start_paused = true)]
async fn new_entry_is_cached_and_least_recently_used_is_evicted() {
    let cache: Cache<u64, u64, ()> =
        Cache::with_weight_max(10, |_, outcome| outcome.as_ref().map_or(1, |&weight| weight as u32));
    for key in 0..20 {
        let make = || async { Ok(Fresh { value: 5, lifetime: seconds(60) }) };
        assert_eq!(cache.fetch(&key, make).await, Ok(5));
    }
    assert_eq!(cache.entries(), 2, "ten in all, five each");
    assert!(cache.get(&19).is_some() && cache.get(&0).is_none());
}

proptest! {
    /// Compares the cache with a model: the cache returns the last value made for a key until that value expires.
    #[test]
    fn cache_behaves_like_a_map_with_expiry(
        steps in proptest::collection::vec((0_u8..4, 0_u64..3, 0_u64..6), 1..80)
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let cache: Cache<u64, u64, u64> = Cache::with_entries_max(1_000);
            let mut model = std::collections::HashMap::new();
            let mut now = 0;
            for (serial, (step, key, amount)) in steps.into_iter().enumerate() {
                let serial = serial as u64;
                match step {
                    0 => { tokio::time::advance(seconds(amount)).await; now += amount; }
                    1 => { cache.invalidate(&key); model.remove(&key); }
                    _ => {
                        let good = step == 2;
                        let made = if good { Ok(serial) } else { Err(serial) };
                        let lifetime = seconds(amount);
                        let make = move || async move {
                            match made {
                                Ok(value) => Ok(Fresh { value, lifetime }),
                                Err(error) => Err(Failed { error, lifetime }),
                            }
                        };
                        let known = model.get(&key).filter(|(_, until)| now < *until);
                        let expected = known.map_or(made, |(outcome, _)| *outcome);
                        if known.is_none() && amount > 0 {
                            model.insert(key, (made, now + amount));
                        }
                        prop_assert_eq!(cache.fetch(&key, make).await, expected);
                    }
                }
            }
            Ok(())
        })?;
    }
}
