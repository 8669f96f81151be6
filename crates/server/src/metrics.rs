//! Prometheus metrics: one registry for every component, served at `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Media type of the metrics (OpenMetrics 1.0).
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Labels of a request. The path is the route's template, so that the number of labels does not depend on the requested paths.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(crate) struct RequestLabels {
    pub(crate) method: String,
    pub(crate) route: String,
    pub(crate) status: u16,
}

/// The label of metrics with a single label, `kind`.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(crate) struct KindLabel {
    pub(crate) kind: &'static str,
}

/// Labels of a refused connection: the listener and the reason.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RefusedConnection {
    listener: &'static str,
    reason: &'static str,
}

/// The registry, and the metrics of the server itself. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<MetricFamilies>);

struct MetricFamilies {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Histogram, fn() -> Histogram>,
    refusals: Family<KindLabel, Counter>,
    connections: Family<KindLabel, Gauge>,
    refused_connections: Family<RefusedConnection, Counter>,
    handshakes: Family<KindLabel, Counter>,
    in_flight: Gauge,
}

/// Creates a histogram with buckets from 0.5 ms to 16 s, doubling.
fn duration_histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, 16))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Family::new_with_constructor(duration_histogram as fn() -> Histogram);
        let (refusals, connections, handshakes) = (Family::default(), Family::default(), Family::default());
        registry.register(
            "bulla_server_request_duration_seconds",
            "Request duration by route template and status, from request head to response head",
            requests.clone(),
        );
        registry.register(
            "bulla_server_refusals",
            "Requests rejected before their handler, by reason",
            refusals.clone(),
        );
        registry.register("bulla_server_connections", "Open connections, by listener", connections.clone());
        let refused_connections = Family::default();
        registry.register(
            "bulla_server_refused_connections",
            "Connections closed because of a limit, by listener and reason",
            refused_connections.clone(),
        );
        let in_flight = Gauge::default();
        registry.register(
            "bulla_server_requests_in_flight",
            "Requests in progress: the response head is not yet available",
            in_flight.clone(),
        );
        registry.register("bulla_server_handshakes", "TLS handshakes by outcome", handshakes.clone());
        registry.register_collector(Box::new(Tasks));
        Self(Arc::new(MetricFamilies {
            registry: Mutex::new(registry),
            requests,
            refusals,
            connections,
            refused_connections,
            handshakes,
            in_flight,
        }))
    }
}

impl Metrics {
    /// Registers the metrics of another component, named `bulla_<crate>_<noun>_<unit>`. The suffix `_total` of counters is added
    /// automatically.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.0.registry.lock());
    }

    /// Returns all metrics in OpenMetrics format.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = encode(&mut text, &self.0.registry.lock());
        text
    }

    pub(crate) fn request(&self, labels: &RequestLabels, took: Duration) {
        self.0.requests.get_or_create(labels).observe(took.as_secs_f64());
    }

    /// Counts a request that was refused before its handler ran.
    pub(crate) fn refused(&self, kind: &'static str) {
        self.0.refusals.get_or_create(&KindLabel { kind }).inc();
    }

    /// Counts a connection that was closed because of a limit.
    pub(crate) fn connection_refused(&self, listener: &'static str, reason: &'static str) {
        self.0.refused_connections.get_or_create(&RefusedConnection { listener, reason }).inc();
    }

    pub(crate) fn handshake(&self, kind: &'static str) {
        self.0.handshakes.get_or_create(&KindLabel { kind }).inc();
    }

    /// Counts a request in progress, until the returned value is dropped.
    pub(crate) fn begin_request(&self) -> Counted {
        self.0.in_flight.inc();
        Counted(self.0.in_flight.clone())
    }

    /// Counts an open connection of a listener, until the returned value is dropped.
    pub(crate) fn connection(&self, kind: &'static str) -> Counted {
        let gauge = self.0.connections.get_or_create_owned(&KindLabel { kind });
        gauge.inc();
        Counted(gauge)
    }
}

/// An increment of a gauge, undone on drop. Returned by [`Metrics::connection`] and [`Metrics::begin_request`].
pub(crate) struct Counted(Gauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Collector of the number of live tasks in the process, read at each scrape.
#[derive(Debug)]
struct Tasks;

impl Collector for Tasks {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let family = ConstGauge::new(0_i64);
        let mut metric = encoder.encode_descriptor(
            "bulla_tasks_live",
            "Running tasks, by kind",
            None,
            EncodeMetric::metric_type(&family),
        )?;
        for (kind, live) in telemetry::tasks::live() {
            let labels = KindLabel { kind };
            ConstGauge::new(live).encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_text_includes_counters_and_registered_metrics() {
        let metrics = Metrics::default();
        let _task = telemetry::tasks::guard("metrics-test");
        metrics.refused("unauthenticated");
        let connection = metrics.connection("tls");
        let labels = RequestLabels { method: "GET".to_owned(), route: "/healthz".to_owned(), status: 200 };
        metrics.request(&labels, Duration::from_millis(3));
        metrics.register(|registry| registry.register("bulla_x_things", "Things", Counter::<u64>::default()));
        let text = metrics.encode();
        for line in [
            "bulla_server_refusals_total{kind=\"unauthenticated\"} 1",
            "bulla_server_connections{kind=\"tls\"} 1",
            "bulla_server_request_duration_seconds_count{method=\"GET\",route=\"/healthz\",status=\"200\"} 1",
            "bulla_tasks_live{kind=\"metrics-test\"} 1",
            "bulla_x_things_total 0",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        drop(connection);
        assert!(metrics.encode().contains("bulla_server_connections{kind=\"tls\"} 0"));
    }
}
