//! State shared by all connections of consumers.

use std::sync::Arc;

use inbound::ServiceTasks;
use tokio::sync::Semaphore;

use super::leaf_issuer::LeafIssuer;
use super::metrics::MintingMetrics;

/// State that all connections of consumers share.
pub(super) struct MintingService {
    pub(super) leaf_issuer: LeafIssuer,
    pub(super) streams: Arc<Semaphore>,
    /// Permits for the names of all streams together.
    pub(super) names: Arc<Semaphore>,
    pub(super) names_per_stream_max: usize,
    pub(super) tasks: ServiceTasks,
    pub(super) metrics: MintingMetrics,
}
