//! The state of the server, shared by all connections.

use std::time::Instant;

use inbound::ServiceTasks;
use keys::TicketKeys;
use parking_lot::RwLock;

use super::caller::Caller;
use super::memory::ByteBudget;
use super::options::Options;
use super::relay_limit::RelayLimit;
use super::slots::ConnectionSlots;
use super::tls::Presented;
use crate::KeySet;
use crate::in_flight::ConcurrencyLimit;
use crate::metrics::Metrics;
use crate::routing::Router;
use crate::stage::Stage;
use crate::tenant::{Identity, Tenants};

/// The state of the server, shared by all connections.
pub(super) struct ServerState {
    pub(super) options: Options,
    pub(super) keys: KeySet,
    pub(super) stage: Stage<Caller>,
    pub(super) tenants: Tenants,
    pub(super) metrics: Metrics,
    pub(super) tickets: Option<TicketKeys>,
    pub(super) remote: ConcurrencyLimit,
    pub(super) relays: RelayLimit,
    pub(super) byte_budget: ByteBudget,
    pub(super) tls: RwLock<Option<Presented>>,
    /// TLS options for other nodes.
    pub(super) nodes_tls: RwLock<Option<Presented>>,
    pub(super) slots: ConnectionSlots,
    pub(super) tasks: ServiceTasks,
}

impl ServerState {
    /// Returns the router, if this server is a node.
    pub(super) fn router(&self) -> Option<&Router> {
        self.options.nodes.as_ref().map(|nodes| &nodes.router)
    }

    /// Returns whether the client may connect. The certificate of a node must belong to a current member; any other verified
    /// certificate suffices.
    pub(super) fn may_connect(&self, identity: &Identity) -> bool {
        !identity.is_node() || self.router().is_some_and(|router| router.knows(identity))
    }

    pub(super) fn sample_flows(&self, now: Instant) {
        self.tenants.sample(now);
        self.metrics.destinations().sample(now);
        if let Some(nodes) = &self.options.nodes {
            nodes.router.sample(now);
        }
    }

    /// Waits until a node is no longer a member. Never completes without a router.
    pub(super) async fn wait_until_removed(&self, identity: &Identity) {
        match self.router() {
            Some(router) => router.wait_until_removed(identity).await,
            None => std::future::pending().await,
        }
    }

    /// Serves a connection until it ends, and counts it by its outcome.
    pub(super) async fn counted(&self, serving: impl Future<Output = &'static str>) {
        let _live = telemetry::tasks::guard("keyless-connection");
        let _counted = self.metrics.connection();
        let end = serving.await;
        self.metrics.connection_ended(end);
    }
}
