//! What all connections of consumers share.

use std::sync::Arc;

use http_relay::doors::Doors;
use tokio::sync::Semaphore;

use super::desk::Desk;
use super::metrics::MintingMetrics;

/// What all connections share.
pub(super) struct MintingService {
    pub(super) desk: Desk,
    pub(super) streams: Arc<Semaphore>,
    /// Of all streams together.
    pub(super) names: Arc<Semaphore>,
    pub(super) names_per_stream_max: usize,
    pub(super) doors: Doors,
    pub(super) metrics: MintingMetrics,
}
