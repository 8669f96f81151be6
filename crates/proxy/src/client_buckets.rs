//! Token buckets for each client.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use flight::{BoundedMap, Eviction};
use outbound::rate::{Bucket, Rate};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum clients with buckets in memory. The least recently active client is evicted first.
const CLIENTS_MAX: u64 = 65_536;
/// Time for which a client stays in memory after its buckets are full again.
const REMEMBERED_FULL: Duration = Duration::from_secs(60);

/// `N` token buckets for each client. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ClientBuckets<K, const N: usize> {
    rates: [Rate; N],
    began: Instant,
    clients: BoundedMap<K, Arc<Mutex<[Bucket; N]>>>,
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static, const N: usize> ClientBuckets<K, N> {
    /// Creates token buckets that are full for each new client and refill at `rates`.
    pub(crate) fn new(rates: [Rate; N]) -> Self {
        let refilled = rates.iter().map(|rate| rate.refill_time()).max().unwrap_or_default();
        let clients = BoundedMap::builder(CLIENTS_MAX)
            .time_to_idle(refilled + REMEMBERED_FULL)
            // The cache's default policy may reject a new client. Each request of that client would then get full buckets.
            .eviction(Eviction::LeastRecent)
            .build();
        Self { rates, began: Instant::now(), clients }
    }

    /// Takes a token from each bucket of a client. If a bucket is empty, takes none and returns false.
    pub(crate) fn take(&self, client: &K) -> bool {
        let buckets = self.of(client);
        let mut buckets = buckets.lock();
        let now_us = self.now_us();
        let has_tokens = self.have_tokens(&buckets, now_us);
        if has_tokens {
            for (bucket, rate) in buckets.iter_mut().zip(self.rates) {
                // Cannot fail: the bucket has a token.
                let _ = bucket.take(now_us, rate);
            }
        }
        has_tokens
    }

    /// Returns whether each bucket of a client has a token.
    pub(crate) fn has_tokens(&self, client: &K) -> bool {
        let buckets = self.of(client);
        let buckets = buckets.lock();
        self.have_tokens(&buckets, self.now_us())
    }

    /// Returns a token to the client's first bucket.
    pub(crate) fn give_back(&self, client: &K) {
        if let Some(buckets) = self.clients.get(client)
            && let Some((bucket, rate)) = buckets.lock().iter_mut().zip(self.rates).next()
        {
            bucket.give_back(rate);
        }
    }

    fn have_tokens(&self, buckets: &[Bucket; N], now_us: i64) -> bool {
        buckets.iter().zip(self.rates).all(|(bucket, rate)| bucket.wait(now_us, rate) == 0)
    }

    fn of(&self, client: &K) -> Arc<Mutex<[Bucket; N]>> {
        self.clients.get_with_by_ref(client, || Arc::new(Mutex::new([Bucket::default(); N])))
    }

    fn now_us(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}
