//! What connections and requests of clients say of the servers that they went to.

use super::group::{Change, Group, Server};
use super::metrics::EdgeMetrics;

/// A connection or a request of a client was answered.
pub(super) fn note_answered(group: &Group, server: &Server, metrics: &EdgeMetrics) {
    server.answered();
    metrics.server_answered(group.name(), &server.label);
}

/// A connection or a request of a client was not answered.
pub(super) fn note_failed(group: &Group, server: &Server, metrics: &EdgeMetrics) {
    metrics.server_failed(group.name(), &server.label);
    if server.failed(group.health()) == Change::Down {
        tracing::warn!(
            upstream = %group.name(), server = %server.label,
            "a server is ejected: connections or requests to it failed in a row"
        );
    }
}
