//! Limits of concurrent permission requests: in total, and lower for each client, so that one client's names do not block others.

use std::sync::Arc;
use std::time::Duration;

use flight::{BoundedMap, Eviction};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::certificate_store::RateLimitKey;

/// One client may use one part in `SHARE` of all slots.
const SHARE: usize = 4;
/// Maximum clients whose requests are counted. Beyond the maximum, clients may be forgotten and get their full share again.
const CLIENTS_MAX: u64 = 65_536;
/// Idle time after which a client is forgotten: longer than any request takes.
const IDLE: Duration = Duration::from_secs(300);

pub(super) struct QuestionSlots {
    all: Arc<Semaphore>,
    share: usize,
    of: BoundedMap<RateLimitKey, Arc<Semaphore>>,
}

/// Slot of a request in progress, until dropped.
pub(super) struct QuestionSlot {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl QuestionSlots {
    /// Creates slots for `questions_max` concurrent requests.
    pub(super) fn new(questions_max: usize) -> Self {
        let of = BoundedMap::builder(CLIENTS_MAX).time_to_idle(IDLE);
        Self {
            all: Arc::new(Semaphore::new(questions_max)),
            share: questions_max.div_ceil(SHARE),
            of: of.eviction(Eviction::LeastRecent).build(),
        }
    }

    /// Takes a slot. Waits up to `limit` for a slot of the client's own share, but does not wait if all slots are in use. Returns
    /// `None` if there is no slot.
    pub(super) async fn enter(&self, client: &RateLimitKey, limit: Duration) -> Option<QuestionSlot> {
        let own = self.of.get_with_by_ref(client, || Arc::new(Semaphore::new(self.share)));
        let own = tokio::time::timeout(limit, own.acquire_owned()).await.ok()?.ok()?;
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(QuestionSlot { _own: own, _of_all: of_all })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn question_slots_are_limited_per_client_and_in_total() {
        let slots = QuestionSlots::new(8);
        let client = |last: u8| RateLimitKey::from(IpAddr::from([192, 0, 2, last]));
        let limit = Duration::from_secs(2);
        let mut taken = Vec::new();
        for _ in 0..2 {
            taken.push(slots.enter(&client(1), limit).await.unwrap());
        }
        assert!(slots.enter(&client(1), limit).await.is_none(), "its share is taken");
        let first_client = client(1);
        let (_, waited) = tokio::join!(async { drop(taken.pop()) }, slots.enter(&first_client, limit));
        taken.push(waited.unwrap());
        for other in 2..5 {
            for _ in 0..2 {
                taken.push(slots.enter(&client(other), limit).await.unwrap());
            }
        }
        // All slots are in use: a new request fails immediately.
        let began = tokio::time::Instant::now();
        assert!(slots.enter(&client(9), limit).await.is_none());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
