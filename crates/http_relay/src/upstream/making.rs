//! Connection attempts in progress. All requests that wait for a connection to the same origin share one attempt.

use std::sync::Arc;
use std::time::Duration;

use super::super::target::Origin;
use super::error::UpstreamConnectError;
use super::http2::Http2;

/// Maximum origins that are remembered as supporting only HTTP/1.1. Each request to such an origin opens its own connection,
/// without waiting for another request.
pub(super) const HTTP1_ORIGINS_MAX: u64 = 4_096;
/// Time after which an origin is no longer remembered as supporting only HTTP/1.1.
pub(super) const HTTP1_LIFE: Duration = Duration::from_secs(60);

/// Result that is shared by all requests that waited for one connection.
#[derive(Clone)]
pub(super) enum SharedConnection {
    Http2(Http2),
    /// The connection uses HTTP/1.1 and serves one request only.
    Http1,
}

/// Connection attempts in progress, by origin.
pub(super) type PendingConnections = flight::Cache<Arc<Origin>, SharedConnection, Arc<UpstreamConnectError>>;
