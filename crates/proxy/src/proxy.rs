//! Shared state of all connections of the proxy.

use std::net::SocketAddr;
use std::sync::Arc;

use http_relay::upstream::Upstreams;
use inbound::ServiceTasks;

use crate::access::Access;
use crate::budgets::Budgets;
use crate::hooks::Hooks;
use crate::leases::IdentityLeases;
use crate::metrics::ProxyMetrics;
use crate::mirror::MirrorCache;
use crate::options::Options;
use crate::permission::Permission;
use crate::refusals::Refusals;
use crate::requests::{LiveRules, RequestLog};
use crate::tls::Interception;

/// State that all connections of the proxy share.
pub(super) struct Proxy {
    pub(super) options: Options,
    pub(super) address: SocketAddr,
    pub(super) access: Arc<Access>,
    pub(super) budgets: Budgets,
    pub(super) refusals: Refusals,
    pub(super) permission: Permission,
    pub(super) mirrors: MirrorCache,
    pub(super) tls: Interception,
    pub(super) upstreams: Upstreams,
    pub(super) metrics: ProxyMetrics,
    pub(super) tasks: ServiceTasks,
    pub(super) rules: LiveRules,
    pub(super) requests: RequestLog,
    pub(super) leases: Option<IdentityLeases>,
    pub(super) hooks: Hooks,
}
