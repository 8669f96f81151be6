//! Records successes and failures of servers in their health state.

use super::group::{Change, Group, Server};
use super::metrics::EdgeMetrics;

/// Records a connection or request that the server answered.
pub(super) fn note_answered(group: &Group, server: &Server, metrics: &EdgeMetrics) {
    server.answered();
    metrics.server_answered(group.name(), &server.label);
}

/// Records a connection or request that the server failed.
pub(super) fn record_failure(group: &Group, server: &Server, metrics: &EdgeMetrics) {
    metrics.server_failed(group.name(), &server.label);
    if server.failed(group.health()) == Change::Down {
        tracing::warn!(
            upstream = %group.name(), server = %server.label,
            "ejected a server of an upstream after consecutive failures"
        );
    }
}
