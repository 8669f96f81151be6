//! Slots for connections. They are taken by those who have shown who they are; those who have not yet have few,
//! and one address only some of these, so that nobody without a certificate keeps anybody out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// TLS handshakes under way, some 50 KB each: at 1 ms of a processor a handshake, half a second's worth.
pub const HANDSHAKES_MAX: usize = 512;

/// Of one address: a terminator has one connection, a host with many behind it some. Of IPv6 one address is a whole /64,
/// of which any host may have all.
pub(super) const HANDSHAKES_PER_ADDRESS_MAX: usize = 64;

/// The places there are.
pub(super) struct ConnectionSlots {
    /// Of clients that have shown who they are.
    pub(super) known: Arc<Semaphore>,
    /// Of local ones: those from elsewhere cannot take theirs.
    pub(super) local: Arc<Semaphore>,
    /// Of other nodes: clients cannot take theirs.
    pub(super) nodes: Arc<Semaphore>,
    pub(super) handshakes: Arc<Semaphore>,
    pub(super) by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A handshake under way, until dropped.
pub(super) struct Handshake {
    pub(super) address: IpAddr,
    pub(super) by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    pub(super) _permit: OwnedSemaphorePermit,
}

impl ConnectionSlots {
    pub(super) fn new(connections_max: usize) -> Self {
        Self {
            known: Arc::new(Semaphore::new(connections_max)),
            local: Arc::new(Semaphore::new(connections_max)),
            nodes: Arc::new(Semaphore::new(connections_max)),
            handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            by_address: Arc::default(),
        }
    }

    pub(super) fn handshake(&self, address: IpAddr) -> Option<Handshake> {
        let address = site(address);
        let permit = Arc::clone(&self.handshakes).try_acquire_owned().ok()?;
        let mut counts = self.by_address.lock();
        let count = counts.entry(address).or_default();
        if *count >= HANDSHAKES_PER_ADDRESS_MAX {
            return None;
        }
        *count += 1;
        Some(Handshake { address, by_address: Arc::clone(&self.by_address), _permit: permit })
    }
}

fn site(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let mut counts = self.by_address.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_are_counted_by_site() {
        let slots = ConnectionSlots::new(1);
        let shake = |address: &str| slots.handshake(address.parse().unwrap());
        let held: Vec<_> =
            (0..HANDSHAKES_PER_ADDRESS_MAX).map(|at| shake(&format!("2001:db8::{at:x}")).unwrap()).collect();
        assert!(shake("2001:db8::ffff").is_none(), "another address of the same host");
        assert!(shake("2001:db8:0:1::1").is_some());
        assert!(shake("::ffff:192.0.2.1").is_some());
        drop(held);
        assert!(shake("2001:db8::ffff").is_some());
    }
}
