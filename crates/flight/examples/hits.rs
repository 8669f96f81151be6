//! Benchmark: nanoseconds per cache hit of `Cache::get` with a short and a long key, on one thread and on two.
//!
//! `cargo run --release -p flight --example hits`

#![allow(clippy::print_stdout, reason = "an example tells its figures")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use flight::{Cache, Failed, Fresh};

const ENTRIES: u64 = 1_000;
const HITS: u64 = 4_000_000;
const ROUNDS: usize = 5;

/// A separate key type for each number, so that each has its own instantiation of the code.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Numbered<const N: usize>(u64);

async fn filled<K: Clone + Eq + std::hash::Hash + Send + Sync + 'static>(
    key: impl Fn(u64) -> K,
) -> (Cache<K, u64, ()>, Vec<K>) {
    let cache = Cache::with_entries_max(ENTRIES * 2);
    let keys: Vec<K> = (0..ENTRIES).map(key).collect();
    for (value, key) in (0..).zip(&keys) {
        let make =
            move || async move { Ok::<_, Failed<()>>(Fresh { value, lifetime: Duration::from_secs(3_600) }) };
        let _ = cache.fetch(key, make).await;
    }
    let _ = cache.entries();
    (cache, keys)
}

/// Returns the nanoseconds per hit in the fastest round.
fn hits<K: Clone + Eq + std::hash::Hash + Send + Sync + 'static>(
    cache: &Cache<K, u64, ()>,
    keys: &[K],
    threads: u64,
) -> f64 {
    let round = || {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for at in 0..HITS {
                        black_box(cache.get(&keys[(at.wrapping_mul(7919) % ENTRIES) as usize]));
                    }
                });
            }
        });
        begun.elapsed().as_secs_f64() * 1e9 / HITS as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::MAX, f64::min)
}

async fn more<const N: usize>() -> u64 {
    filled(Numbered::<N>).await.0.entries()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (numbers, number_keys) = filled(|at| at).await;
    let (names, name_keys) = filled(|at| format!("a-rather-long-name-{at}.department.example")).await;
    for threads in [1, 2] {
        println!("threads {threads}: u64 {:.1} ns", hits(&numbers, &number_keys, threads));
        println!("threads {threads}: String {:.1} ns", hits(&names, &name_keys, threads));
    }
    let eight = [
        more::<0>().await,
        more::<1>().await,
        more::<2>().await,
        more::<3>().await,
        more::<4>().await,
        more::<5>().await,
        more::<6>().await,
        more::<7>().await,
    ];
    println!("{} entries of eight other types", eight.iter().sum::<u64>());
}
