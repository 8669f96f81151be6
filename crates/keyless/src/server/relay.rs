//! Forwards requests of other nodes to nodes that they do not reach themselves.

use std::sync::Arc;
use std::time::Instant;

use super::entry::Failure;
use super::memory::DIGEST_MAX;
use super::replies::Call;
use super::state::ServerState;
use crate::native::proto::SignRequest;
use crate::routing::{NodeId, RelayError, RequestContext};
use crate::tenant::Identity;

impl ServerState {
    /// Forwards a request of another node to its destination. The destination and the sending node enforce the tenant's limits, not
    /// this node.
    pub(super) fn relay(
        self: &Arc<Self>,
        mut call: Call,
        identity: &Identity,
        node: NodeId,
        request: SignRequest,
        due: Option<Instant>,
    ) {
        let Some(router) = self.router().filter(|router| router.requesting_node(identity).is_some()).cloned()
        else {
            // A node may use another path; other callers learn nothing about nodes.
            let is_node = call.is_node;
            return call.fail(if is_node { RelayError::NoConnection.into() } else { Failure::UnknownKey });
        };
        let tenant = Arc::clone(call.entry.tenant());
        let deadline = due.unwrap_or_else(|| call.entry.began() + self.options.deadline);
        let Some(permit) = self.relays.acquire(tenant.name()) else {
            return call.fail(Failure::Relay(RelayError::Full));
        };
        let is_long = request.input.len() > DIGEST_MAX;
        let reserved = is_long.then(|| self.byte_budget.reserve(request.input.len(), &tenant));
        if let Some(None) = reserved {
            return call.fail(Failure::Relay(RelayError::Full));
        }
        let counted = self.metrics.remote();
        call.entry.queue(reserved.flatten());
        self.tasks.spawn(async move {
            let _live = telemetry::tasks::guard("keyless-relay");
            let _permits = (permit, counted);
            call.entry.started();
            let signal = call.cancel_signal();
            let (trace, hops) = call.entry.forwarded();
            let policy = request.policy.clone();
            let context = RequestContext {
                tenant: tenant.name(),
                most: tenant.requests_per_node_max(),
                trace: Some(trace),
                hops: Some(&hops),
                policy: &policy,
                deadline,
            };
            let message =
                SignRequest { node: Vec::new(), cancel: false, traceparent: trace.to_string(), ..request };
            let done = tokio::select! {
                // Checked first: a cancelled request is not forwarded, even if that is possible now.
                biased;
                () = signal.cancelled() => None,
                done = router.relay(node, message, &context) => Some(done),
            };
            match done {
                Some(Ok(signature)) => call.done(signature),
                Some(Err(error)) => call.fail(Failure::Relay(error)),
                None => {}
            }
        });
    }
}
