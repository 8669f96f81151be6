//! Questions at once: some of all, fewer of each client, so that nobody's many names keep others from asking.

use std::sync::Arc;
use std::time::Duration;

use flight::{BoundedMap, Eviction};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::certificate_store::RateLimitKey;

/// A client has one part in so many of all places.
const SHARE: usize = 4;
/// Clients of whom it is known how many ask; of more, some have a whole share again.
const CLIENTS_MAX: u64 = 65_536;
/// A client is forgotten that has not asked for so long: longer than any question takes.
const IDLE: Duration = Duration::from_secs(300);

pub(super) struct QuestionSlots {
    all: Arc<Semaphore>,
    share: usize,
    of: BoundedMap<RateLimitKey, Arc<Semaphore>>,
}

/// Held while a question is under way.
pub(super) struct QuestionSlot {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl QuestionSlots {
    /// With so many in all.
    pub(super) fn new(questions_max: usize) -> Self {
        let of = BoundedMap::builder(CLIENTS_MAX).time_to_idle(IDLE);
        Self {
            all: Arc::new(Semaphore::new(questions_max)),
            share: questions_max.div_ceil(SHARE),
            of: of.eviction(Eviction::LeastRecent).build(),
        }
    }

    /// A place of the client's own, for which it waits behind itself alone, `limit` at most; of all, one that is there at once.
    /// None where there is none.
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
    async fn one_client_waits_behind_itself_and_keeps_nobody_from_asking() {
        let places = QuestionSlots::new(8);
        let client = |last: u8| RateLimitKey::from(IpAddr::from([192, 0, 2, last]));
        let limit = Duration::from_secs(2);
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(places.enter(&client(1), limit).await.unwrap());
        }
        assert!(places.enter(&client(1), limit).await.is_none(), "its share is taken");
        let again = client(1);
        let (_, waited) = tokio::join!(async { drop(held.pop()) }, places.enter(&again, limit));
        held.push(waited.unwrap());
        for other in 2..5 {
            for _ in 0..2 {
                held.push(places.enter(&client(other), limit).await.unwrap());
            }
        }
        // All are taken: who comes now is told so at once.
        let began = tokio::time::Instant::now();
        assert!(places.enter(&client(9), limit).await.is_none());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
