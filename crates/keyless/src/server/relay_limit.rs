//! The limit of concurrent requests that are forwarded for other nodes.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::in_flight::TenantCounts;
use crate::limits::REMOTE_MAX;

/// Maximum forwarded requests in flight, 2 KB each, in addition to the requests of this node's clients. One tenant may use half.
pub const RELAYED_MAX: usize = REMOTE_MAX / 2;

/// The forwarded requests in flight. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(super) struct RelayLimit(Arc<Mutex<RelayCounts>>);

#[derive(Debug, Default)]
struct RelayCounts {
    all: usize,
    by_tenant: TenantCounts,
}

/// Permission to forward one request, until dropped.
pub(super) struct RelayPermit {
    pub(super) relays: RelayLimit,
    pub(super) tenant: String,
}

impl RelayLimit {
    pub(super) fn acquire(&self, tenant: &str) -> Option<RelayPermit> {
        let mut state = self.0.lock();
        if state.all >= RELAYED_MAX || state.by_tenant.of(tenant) >= RELAYED_MAX / 2 {
            return None;
        }
        state.all += 1;
        state.by_tenant.add(tenant);
        Some(RelayPermit { relays: self.clone(), tenant: tenant.to_owned() })
    }
}

impl Drop for RelayPermit {
    fn drop(&mut self) {
        let mut state = self.relays.0.lock();
        state.all -= 1;
        state.by_tenant.remove(&self.tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relayed_requests_are_limited_to_half_per_tenant() {
        let relays = RelayLimit::default();
        let of = |tenant: &str| (0..RELAYED_MAX).map_while(|_| relays.acquire(tenant)).collect::<Vec<_>>();
        let (one, other) = (of("a"), of("b"));
        assert_eq!((one.len(), other.len()), (RELAYED_MAX / 2, RELAYED_MAX / 2));
        assert!(relays.acquire("c").is_none(), "nothing is left");
        drop(one);
        assert_eq!(of("c").len(), RELAYED_MAX / 2);
    }
}
