//! Connections that are being made, each for all who wait for the same origin.

use std::sync::Arc;
use std::time::Duration;

use super::super::target::Origin;
use super::error::NoConnection;
use super::http2::Http2;

/// Origins that are known to speak HTTP/1.1 alone, and for how long: who asks them makes a connection without waiting for others.
pub(super) const HTTP1_ORIGINS_MAX: u64 = 4_096;
pub(super) const HTTP1_LIFE: Duration = Duration::from_secs(60);

/// What all share who have waited for one connection.
#[derive(Clone)]
pub(super) enum SharedConnection {
    Http2(Http2),
    /// It is of one alone.
    Http1,
}

/// Connections that are being made, by whom they are to.
pub(super) type Making = flight::Cache<Arc<Origin>, SharedConnection, Arc<NoConnection>>;
