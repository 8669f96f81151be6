//! How many requests of other nodes are passed on at once.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::in_flight::Counts;
use crate::limits::ELSEWHERE_MAX;

/// Requests that may be passed on at once, 2 KB each, beside those of the own clients; of one tenant half.
pub const RELAYED_MAX: usize = ELSEWHERE_MAX / 2;

/// Those under way. Cheap to clone; the clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Relays(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    all: usize,
    by_tenant: Counts,
}

/// One of them, until dropped.
pub(super) struct Place {
    pub(super) relays: Relays,
    pub(super) tenant: String,
}

impl Relays {
    pub(super) fn take(&self, tenant: &str) -> Option<Place> {
        let mut state = self.0.lock();
        if state.all >= RELAYED_MAX || state.by_tenant.of(tenant) >= RELAYED_MAX / 2 {
            return None;
        }
        state.all += 1;
        state.by_tenant.add(tenant);
        Some(Place { relays: self.clone(), tenant: tenant.to_owned() })
    }
}

impl Drop for Place {
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
    fn a_tenant_has_half_of_what_is_passed_on_and_gives_it_back() {
        let relays = Relays::default();
        let of = |tenant: &str| (0..RELAYED_MAX).map_while(|_| relays.take(tenant)).collect::<Vec<_>>();
        let (one, other) = (of("a"), of("b"));
        assert_eq!((one.len(), other.len()), (RELAYED_MAX / 2, RELAYED_MAX / 2));
        assert!(relays.take("c").is_none(), "nothing is left");
        drop(one);
        assert_eq!(of("c").len(), RELAYED_MAX / 2);
    }
}
