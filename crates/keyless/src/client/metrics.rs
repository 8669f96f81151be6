//! Metrics of client requests, by server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::address::Server;
use super::error::ClientError;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ServerLabel {
    server: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ErrorLabels {
    server: String,
    error: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OutcomeLabels {
    server: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RetryLabel {
    outcome: &'static str,
}

/// The client's metrics. Clones share them.
#[derive(Clone)]
pub struct ClientMetrics(Arc<MetricFamilies>);

struct MetricFamilies {
    durations: Family<ServerLabel, Histogram, fn() -> Histogram>,
    in_flight: Family<ServerLabel, Gauge>,
    up: Family<ServerLabel, Gauge>,
    errors: Family<ErrorLabels, Counter>,
    connects: Family<OutcomeLabels, Counter>,
    retries: Family<RetryLabel, Counter>,
}

/// Returns a histogram with buckets from 16 µs to 4 s, each twice the previous.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.000_016, 2.0, 19))
}

impl Default for ClientMetrics {
    fn default() -> Self {
        Self(Arc::new(MetricFamilies {
            durations: Family::new_with_constructor(durations),
            in_flight: Family::default(),
            up: Family::default(),
            errors: Family::default(),
            connects: Family::default(),
            retries: Family::default(),
        }))
    }
}

impl ClientMetrics {
    /// Registers all client metrics with `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let inner = &self.0;
        registry.register(
            "bulla_keyless_client_request_duration_seconds",
            "Duration of requests to key services, including timeouts and lost connections, by server",
            inner.durations.clone(),
        );
        registry.register(
            "bulla_keyless_client_requests_in_flight",
            "Requests in flight to key services, by server",
            inner.in_flight.clone(),
        );
        registry.register(
            "bulla_keyless_client_up",
            "1 if a key service is connected, by server",
            inner.up.clone(),
        );
        registry.register(
            "bulla_keyless_client_errors",
            "Failed requests to key services, by server and reason",
            inner.errors.clone(),
        );
        registry.register(
            "bulla_keyless_client_connects",
            "Connection attempts to key services, by server and outcome",
            inner.connects.clone(),
        );
        registry.register(
            "bulla_keyless_client_retries",
            "Retries at another key service: made, or refused by the retry budget",
            inner.retries.clone(),
        );
    }

    pub(super) fn retried(&self, made: bool) {
        let outcome = if made { "made" } else { "refused" };
        self.0.retries.get_or_create(&RetryLabel { outcome }).inc();
    }

    /// Returns the metrics of one server.
    pub(super) fn of(&self, server: &Server) -> ServerMetrics {
        let label = ServerLabel { server: server.to_string() };
        ServerMetrics {
            durations: self.0.durations.get_or_create(&label).clone(),
            in_flight: self.0.in_flight.get_or_create(&label).clone(),
            up: self.0.up.get_or_create(&label).clone(),
            server: label.server,
            all: self.clone(),
        }
    }
}

impl fmt::Debug for ClientMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientMetrics")
    }
}

pub(super) struct ServerMetrics {
    durations: Histogram,
    in_flight: Gauge,
    up: Gauge,
    server: String,
    all: ClientMetrics,
}

impl ServerMetrics {
    pub(super) fn began(&self) {
        self.in_flight.inc();
    }

    pub(super) fn ended(&self, took: Duration) {
        self.in_flight.dec();
        self.durations.observe(took.as_secs_f64());
    }

    pub(super) fn failed(&self, error: &ClientError) {
        let labels = ErrorLabels { server: self.server.clone(), error: error.name() };
        self.all.0.errors.get_or_create(&labels).inc();
    }

    pub(super) fn connected(&self, made: bool) {
        let labels =
            OutcomeLabels { server: self.server.clone(), outcome: if made { "made" } else { "failed" } };
        self.all.0.connects.get_or_create(&labels).inc();
    }

    pub(super) fn up(&self, up: bool) {
        self.up.set(up.into());
    }
}
