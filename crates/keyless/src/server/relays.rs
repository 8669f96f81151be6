//! Requests of other nodes of the own site for nodes at other sites: passed on, and that is all.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::Shared;
use super::entry::Failure;
use super::replies::Call;
use super::work::{DIGEST_MAX, ELSEWHERE_MAX};
use crate::native::proto::SignRequest;
use crate::routing::{Asking, NodeId, RelayError};
use crate::tenant::{Counts, Identity};

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
struct Place {
    relays: Relays,
    tenant: String,
}

impl Relays {
    fn take(&self, tenant: &str) -> Option<Place> {
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

impl Shared {
    /// Passes a request of another node of this site on to the node that it is for. The tenant's share counts there and at the node
    /// that asks, and not here.
    pub(super) fn relay(
        self: &Arc<Self>,
        mut call: Call,
        identity: &Identity,
        node: NodeId,
        request: SignRequest,
        due: Option<Instant>,
    ) {
        let Some(router) = self.router().filter(|router| router.neighbour(identity).is_some()).cloned()
        else {
            // A node goes another way; nobody else is told what there is.
            let is_node = call.is_node;
            return call.fail(if is_node { RelayError::NoWay.into() } else { Failure::UnknownKey });
        };
        let tenant = Arc::clone(call.entry.tenant());
        let deadline = due.unwrap_or_else(|| call.entry.began() + self.options.deadline);
        let Some(place) = self.relays.take(tenant.name()) else {
            return call.fail(Failure::Relay(RelayError::Full));
        };
        let is_long = request.input.len() > DIGEST_MAX;
        let held = is_long.then(|| self.octets.take(request.input.len(), &tenant));
        if let Some(None) = held {
            return call.fail(Failure::Relay(RelayError::Full));
        }
        let counted = self.metrics.elsewhere();
        call.entry.queue(held.flatten());
        self.tracker.spawn(async move {
            let _live = telemetry::tasks::guard("keyless-relay");
            let _places = (place, counted);
            call.entry.taken();
            let wanted = call.wanted();
            let (trace, hops) = call.entry.passed_on();
            let policy = request.policy.clone();
            let asking = Asking {
                tenant: tenant.name(),
                most: tenant.of_node_max(),
                trace: Some(trace),
                hops: Some(&hops),
                policy: &policy,
                deadline,
            };
            let message =
                SignRequest { node: Vec::new(), cancel: false, traceparent: trace.to_string(), ..request };
            let done = tokio::select! {
                // What nobody wants is not done, even if it can be.
                biased;
                () = wanted.gone() => None,
                done = router.relay(node, message, &asking) => Some(done),
            };
            match done {
                Some(Ok(signature)) => call.done(signature),
                Some(Err(error)) => call.fail(Failure::Relay(error)),
                None => {}
            }
        });
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
