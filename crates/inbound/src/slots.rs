//! Slots: how many connections are served at once, and how many of them for one client address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::silence::{Silence, SilentConnections};

/// Limit on the slots that clients of one address use at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OriginLimit {
    /// One client may use all slots.
    None,
    /// So many slots for each address.
    PerAddress(usize),
    /// So many slots for each [`network`](crate::network).
    PerNetwork(usize),
}

/// A limit on connections. Clones share their slots, so several listeners can have one limit.
#[derive(Clone, Debug)]
pub struct Slots(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    permits: Arc<Semaphore>,
    in_use: AtomicUsize,
    limit: OriginLimit,
    /// Slots in use by origin, while there is a limit. An entry lives as long as a slot of its origin.
    by_origin: Mutex<HashMap<IpAddr, usize>>,
    silent: SilentConnections,
}

impl Slots {
    /// Slots for `connections_max` connections at once.
    #[must_use]
    pub fn new(connections_max: usize) -> Self {
        Self::limited(connections_max, OriginLimit::None)
    }

    /// Slots for `connections_max` connections at once, and within them `limit` for each origin.
    #[must_use]
    pub fn limited(connections_max: usize, limit: OriginLimit) -> Self {
        let permits = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        let silent = SilentConnections::new(connections_max);
        let (in_use, by_origin) = (AtomicUsize::new(0), Mutex::default());
        Self(Arc::new(Shared { permits, in_use, limit, by_origin, silent }))
    }

    /// Slots that connections use now.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.0.in_use.load(Relaxed)
    }

    /// Connections that have said nothing yet.
    pub(crate) fn silent(&self) -> &SilentConnections {
        &self.0.silent
    }

    /// Takes a slot for a client at `address`. Returns `None` where all are in use, or as many as its origin may have.
    #[must_use]
    pub fn take(&self, address: Option<IpAddr>) -> Option<Slot> {
        self.fill(self.try_reserve()?, address)
    }

    /// A permit that is not yet a connection's, if one is free.
    pub(crate) fn try_reserve(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.permits).try_acquire_owned().ok()
    }

    /// Waits for a permit that is not yet a connection's.
    pub(crate) async fn reserve(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.permits).acquire_owned().await.ok()
    }

    /// Makes a permit the slot of a client at `address`, unless its origin has as many as it may have.
    pub(crate) fn fill(&self, permit: OwnedSemaphorePermit, address: Option<IpAddr>) -> Option<Slot> {
        let shared = &self.0;
        let origin = match shared.limit {
            OriginLimit::None => None,
            OriginLimit::PerAddress(max) => address.map(|address| (address.to_canonical(), max)),
            OriginLimit::PerNetwork(max) => address.map(|address| (crate::network(address), max)),
        };
        if let Some((origin, max)) = origin {
            let mut counts = shared.by_origin.lock();
            let used = counts.get(&origin).copied().unwrap_or_default();
            if used >= max {
                return None;
            }
            counts.insert(origin, used + 1);
        }
        shared.in_use.fetch_add(1, Relaxed);
        let origin = origin.map(|(origin, _)| origin);
        Some(Slot {
            taken: Some(TakenSlot { shared: Arc::clone(shared), origin, _permit: permit }),
            silence: Silence::default(),
        })
    }
}

/// The slot of a connection. Dropping it frees it.
#[derive(Debug)]
#[must_use = "a slot that is dropped is free"]
pub struct Slot {
    taken: Option<TakenSlot>,
    pub(crate) silence: Silence,
}

impl Slot {
    /// Frees the slot before its connection ends: the connection counts no longer, and is not evicted.
    pub fn release(&mut self) {
        self.silence.end();
        self.taken = None;
    }

    /// The silence of the connection, which its handler ends: see [`WhenFull::EvictSilent`](crate::WhenFull::EvictSilent).
    #[must_use]
    pub fn silence(&self) -> Silence {
        self.silence.clone()
    }
}

#[derive(Debug)]
struct TakenSlot {
    shared: Arc<Shared>,
    origin: Option<IpAddr>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for TakenSlot {
    fn drop(&mut self) {
        self.shared.in_use.fetch_sub(1, Relaxed);
        let Some(origin) = self.origin else { return };
        let mut counts = self.shared.by_origin.lock();
        if let Some(count) = counts.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(slots: &Slots, address: &str) -> Option<Slot> {
        slots.take(Some(address.parse().unwrap()))
    }

    #[test]
    fn a_limit_holds_for_all_and_for_each_origin() {
        let table = [
            // Limit, the first client, one of the same origin, one of another.
            (OriginLimit::PerAddress(2), "2001:db8::1", "2001:db8::1", "2001:db8::2"),
            (OriginLimit::PerAddress(2), "192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
            (OriginLimit::PerNetwork(2), "2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1"),
            (OriginLimit::PerNetwork(2), "192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
        ];
        for (limit, first, same, other) in table {
            let slots = Slots::limited(3, limit);
            let mut held = vec![take(&slots, first).unwrap(), take(&slots, same).unwrap()];
            assert!(take(&slots, same).is_none(), "{limit:?}: {same}");
            held.push(take(&slots, other).unwrap());
            assert!(take(&slots, "198.51.100.1").is_none(), "{limit:?}: all are in use");
            assert_eq!(slots.in_use(), 3);
            held.remove(0).release();
            assert!(take(&slots, first).is_some(), "{limit:?}: one of {first} is free");
            drop(held);
            assert_eq!(slots.in_use(), 0);
            assert!(slots.0.by_origin.lock().is_empty());
        }
    }

    #[test]
    fn without_a_limit_one_client_may_use_all() {
        let slots = Slots::new(2);
        let held = [take(&slots, "192.0.2.1").unwrap(), slots.take(None).unwrap()];
        assert!(slots.take(None).is_none());
        drop(held);
        assert!(slots.take(None).is_some());
    }
}
