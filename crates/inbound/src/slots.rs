//! Connection slots: limits on concurrent connections in total and for each client address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::proxies::TrustedProxies;
use crate::silence::{Silence, SilentConnections};

/// Limit on concurrent connections of one client address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OriginLimit {
    /// One client may use all slots.
    None,
    /// Maximum slots of each address.
    PerAddress(usize),
    /// Maximum slots of each [`network`](crate::network).
    PerNetwork(usize),
}

impl OriginLimit {
    fn max(self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::PerAddress(max) | Self::PerNetwork(max) => Some(max),
        }
    }

    /// Returns the address or network that a client counts as, and its maximum number of slots.
    fn of(self, address: IpAddr) -> Option<(IpAddr, usize)> {
        match self {
            Self::None => None,
            Self::PerAddress(max) => Some((address.to_canonical(), max)),
            Self::PerNetwork(max) => Some((crate::network(address), max)),
        }
    }
}

/// A limit on connections. Clones share their slots, so several listeners can have one limit.
#[derive(Clone, Debug)]
pub struct Slots {
    shared: Arc<Shared>,
    proxies: TrustedProxies,
}

#[derive(Debug)]
struct Shared {
    permits: Arc<Semaphore>,
    in_use: AtomicUsize,
    limit: OriginLimit,
    /// Slots in use by origin, if there is a limit. An entry exists while its origin uses a slot.
    by_origin: Mutex<HashMap<IpAddr, usize>>,
    silent: SilentConnections,
}

impl Slots {
    /// Creates slots for `connections_max` concurrent connections.
    #[must_use]
    pub fn new(connections_max: usize) -> Self {
        Self::limited(connections_max, OriginLimit::None)
    }

    /// Creates slots for `connections_max` concurrent connections, with `limit` for each origin.
    #[must_use]
    pub fn limited(connections_max: usize, limit: OriginLimit) -> Self {
        let permits = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        // An address with a higher limit than the default share may have half of its slots silent.
        let share = crate::slots_per_address(connections_max);
        let silent = SilentConnections::new(limit.max().map_or(share, |max| share.max(max / 2)));
        let (in_use, by_origin) = (AtomicUsize::new(0), Mutex::default());
        let shared = Arc::new(Shared { permits, in_use, limit, by_origin, silent });
        Self { shared, proxies: TrustedProxies::default() }
    }

    /// Returns the same slots for a listener behind `proxies`. The proxies' own connections have no origin limit. A connection with
    /// a stated client address counts for that client.
    #[must_use]
    pub fn behind(self, proxies: TrustedProxies) -> Self {
        Self { proxies, ..self }
    }

    /// Returns whether a connection from `address` comes from a trusted proxy.
    pub(crate) fn is_proxy(&self, address: Option<IpAddr>) -> bool {
        address.is_some_and(|address| self.proxies.contains(address))
    }

    /// Returns the number of slots in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.shared.in_use.load(Relaxed)
    }

    /// Returns the connections that have not yet sent data.
    pub(crate) fn silent(&self) -> &SilentConnections {
        &self.shared.silent
    }

    /// Takes a slot for a client at `address`. Returns `None` if all slots are in use, or the client is at its limit.
    #[must_use]
    pub fn take(&self, address: Option<IpAddr>) -> Option<Slot> {
        self.fill(self.try_reserve()?, address)
    }

    /// Reserves a slot without assigning it to a client, if a slot is free.
    pub(crate) fn try_reserve(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.shared.permits).try_acquire_owned().ok()
    }

    /// Waits until a slot is free, and reserves it without assigning it to a client.
    pub(crate) async fn reserve(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.shared.permits).acquire_owned().await.ok()
    }

    /// Returns whether a client at `address` is below its limit.
    pub(crate) fn is_below_limit(&self, address: Option<IpAddr>) -> bool {
        let origin =
            address.filter(|_| !self.is_proxy(address)).and_then(|address| self.shared.limit.of(address));
        origin.is_none_or(|(origin, max)| self.shared.used_by(origin) < max)
    }

    /// Turns a permit into the slot of a client at `address`, unless the client is at its limit.
    pub(crate) fn fill(&self, permit: OwnedSemaphorePermit, address: Option<IpAddr>) -> Option<Slot> {
        let mut assigned = AssignedSlot { shared: Arc::clone(&self.shared), origin: None, _permit: permit };
        if let Some(address) = address.filter(|_| !self.is_proxy(address))
            && !assigned.charge(address)
        {
            return None;
        }
        self.shared.in_use.fetch_add(1, Relaxed);
        Some(Slot { assigned: Some(CountedSlot(assigned)), silence: Silence::default() })
    }
}

impl Shared {
    fn used_by(&self, origin: IpAddr) -> usize {
        self.by_origin.lock().get(&origin).copied().unwrap_or_default()
    }
}

/// The slot of a connection. Dropping the slot frees it.
#[derive(Debug)]
#[must_use = "a slot that is dropped is free"]
pub struct Slot {
    assigned: Option<CountedSlot>,
    pub(crate) silence: Silence,
}

impl Slot {
    /// Frees the slot before its connection ends: the connection no longer counts and cannot be evicted.
    pub fn release(&mut self) {
        self.silence.end();
        self.assigned = None;
    }

    /// Charges the slot to the client at `address`, which a trusted proxy sent. Returns false if the client is at its limit.
    pub(crate) fn charge(&mut self, address: IpAddr) -> bool {
        self.silence.move_to(crate::network(address));
        self.assigned.as_mut().is_none_or(|assigned| assigned.0.charge(address))
    }

    /// Returns the silence of the connection, which the handler ends: see [`WhenFull::EvictSilent`](crate::WhenFull::EvictSilent).
    #[must_use]
    pub fn silence(&self) -> Silence {
        self.silence.clone()
    }
}

#[derive(Debug)]
struct CountedSlot(AssignedSlot);

impl Drop for CountedSlot {
    fn drop(&mut self) {
        self.0.shared.in_use.fetch_sub(1, Relaxed);
    }
}

#[derive(Debug)]
struct AssignedSlot {
    shared: Arc<Shared>,
    origin: Option<IpAddr>,
    _permit: OwnedSemaphorePermit,
}

impl AssignedSlot {
    /// Charges the slot to the origin of `address`, unless the origin is at its limit. Called once.
    fn charge(&mut self, address: IpAddr) -> bool {
        let Some((origin, max)) = self.shared.limit.of(address) else { return true };
        let mut counts = self.shared.by_origin.lock();
        let used = counts.get(&origin).copied().unwrap_or_default();
        if used >= max {
            return false;
        }
        counts.insert(origin, used + 1);
        self.origin = Some(origin);
        true
    }
}

impl Drop for AssignedSlot {
    fn drop(&mut self) {
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
    fn slots_are_limited_in_total_and_per_origin() {
        let table = [
            // Limit, first client, a client of the same origin, a client of another.
            (OriginLimit::PerAddress(2), "2001:db8::1", "2001:db8::1", "2001:db8::2"),
            (OriginLimit::PerAddress(2), "192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
            (OriginLimit::PerNetwork(2), "2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1"),
            (OriginLimit::PerNetwork(2), "192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
        ];
        for (limit, first, same, other) in table {
            let slots = Slots::limited(3, limit);
            let mut taken = vec![take(&slots, first).unwrap(), take(&slots, same).unwrap()];
            assert!(take(&slots, same).is_none(), "{limit:?}: {same}");
            taken.push(take(&slots, other).unwrap());
            assert!(take(&slots, "198.51.100.1").is_none(), "{limit:?}: all are in use");
            assert_eq!(slots.in_use(), 3);
            taken.remove(0).release();
            assert!(take(&slots, first).is_some(), "{limit:?}: one of {first} is free");
            drop(taken);
            assert_eq!(slots.in_use(), 0);
            assert!(slots.shared.by_origin.lock().is_empty());
        }
    }

    #[test]
    fn one_client_may_use_all_slots_without_an_origin_limit() {
        let slots = Slots::new(2);
        let taken = [take(&slots, "192.0.2.1").unwrap(), slots.take(None).unwrap()];
        assert!(slots.take(None).is_none());
        drop(taken);
        assert!(slots.take(None).is_some());
    }
}
