//! Memory budget for response bodies: a client that does not read its responses keeps them in memory.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Divisor that limits one address to half of the total budget.
const SHARE_PARTS: usize = 2;

/// Multiple of the budget up to which an address without a counted response may still get one. A few addresses that read nothing
/// therefore do not block the others.
const FIRST_TIMES: usize = 2;

/// Maximum bytes of a response that is not counted: an OCSP response, a health check, an error. The limits of streams and
/// connections bound the number of such responses.
const SMALL_MAX: usize = 4 << 10;

/// The budget for response bytes that are not yet written, in total and for each address. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ResponseMemory {
    bytes_max: usize,
    used: Arc<Mutex<UsedMemory>>,
}

#[derive(Debug, Default)]
struct UsedMemory {
    all: usize,
    by_network: HashMap<IpAddr, usize>,
}

impl ResponseMemory {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, used: Arc::default() }
    }

    /// Reserves `bytes` for a response to a client at `address`, if the budget allows it. A response larger than the whole budget
    /// is allowed while it is the only one. Small responses are not counted.
    pub(super) fn take(&self, address: IpAddr, bytes: usize) -> Option<ReservedResponseBytes> {
        let network = inbound::network(address);
        let bytes = if bytes > SMALL_MAX { bytes } else { 0 };
        if bytes == 0 {
            return Some(ReservedResponseBytes { memory: self.clone(), network, bytes });
        }
        let mut used = self.used.lock();
        let of_network = used.by_network.get(&network).copied().unwrap_or_default();
        let fits = |before: usize, max: usize| before.saturating_add(bytes) <= max;
        let within_share = fits(of_network, self.bytes_max / SHARE_PARTS) && fits(used.all, self.bytes_max);
        let is_first = of_network == 0 && fits(used.all, self.bytes_max.saturating_mul(FIRST_TIMES));
        if !(within_share || is_first || used.all == 0) {
            return None;
        }
        used.all += bytes;
        used.by_network.insert(network, of_network + bytes);
        drop(used);
        Some(ReservedResponseBytes { memory: self.clone(), network, bytes })
    }
}

/// The reserved bytes of one response, released on drop.
#[derive(Debug)]
pub(super) struct ReservedResponseBytes {
    memory: ResponseMemory,
    network: IpAddr,
    bytes: usize,
}

impl Drop for ReservedResponseBytes {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut used = self.memory.used.lock();
        used.all -= self.bytes;
        if let Some(of_network) = used.by_network.get_mut(&self.network) {
            *of_network -= self.bytes;
            if *of_network == 0 {
                used.by_network.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_may_use_half_the_response_memory_or_one_large_response() {
        const KIB: usize = 1 << 10;
        let memory = ResponseMemory::new(100 * KIB);
        let take = |address: &str, kib: usize| memory.take(address.parse().unwrap(), kib * KIB);
        let one = [take("192.0.2.1", 30).unwrap(), take("192.0.2.1", 20).unwrap()];
        assert!(take("192.0.2.1", 5).is_none());
        let other = take("2001:db8::1", 50).unwrap();
        assert!(take("2001:db8::2", 5).is_none(), "the same /64");
        // The budget is used up: each other address may have one response. Small responses are not counted.
        let first = take("192.0.2.3", 60).unwrap();
        assert!(take("192.0.2.3", 5).is_none() && take("192.0.2.4", 60).is_none());
        assert!(take("192.0.2.3", 4).is_some());
        drop((one, other, first));
        let large = take("192.0.2.1", 1_000).unwrap();
        assert!(take("192.0.2.1", 5).is_none() && take("192.0.2.2", 5).is_none());
        drop(large);
        assert!(take("192.0.2.2", 5).is_some());
        assert!(memory.used.lock().by_network.is_empty());
    }
}
