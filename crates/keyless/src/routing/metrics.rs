//! Metrics of requests to other nodes, by site.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::error::PeerError;
use crate::flow::{FlowMonitor, FlowRatioGauge};
use crate::limits::NODE_MAX;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct SiteLabel {
    site: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ErrorLabels {
    site: String,
    error: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct SiteKindLabels {
    site: String,
    kind: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct KindLabel {
    kind: &'static str,
}

/// The routing metrics. Clones share them.
#[derive(Clone)]
pub struct RoutingMetrics(Arc<MetricFamilies>);

struct MetricFamilies {
    durations: Family<SiteLabel, Histogram, fn() -> Histogram>,
    in_flight: Family<SiteLabel, Gauge>,
    in_flight_max: Family<SiteLabel, Gauge>,
    nodes_up: Family<SiteLabel, Gauge>,
    connections: Family<SiteLabel, Gauge>,
    relayed: Counter,
    relayed_by_others: Family<SiteLabel, Counter>,
    round_trip: Family<SiteLabel, Gauge<f64, AtomicU64>>,
    errors: Family<ErrorLabels, Counter>,
    second_tries: Family<KindLabel, Counter>,
    site_second_tries: Family<SiteKindLabels, Counter>,
    ratio: Family<SiteLabel, FlowRatioGauge>,
    /// Flow monitors of the sites that currently have nodes.
    flows: Mutex<HashMap<String, Weak<FlowMonitor>>>,
}

/// Returns a histogram with buckets from 128 µs to 8 s, each twice the previous.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.000_128, 2.0, 17))
}

impl Default for RoutingMetrics {
    fn default() -> Self {
        Self(Arc::new(MetricFamilies {
            durations: Family::new_with_constructor(durations),
            in_flight: Family::default(),
            in_flight_max: Family::default(),
            nodes_up: Family::default(),
            connections: Family::default(),
            relayed: Counter::default(),
            relayed_by_others: Family::default(),
            round_trip: Family::default(),
            errors: Family::default(),
            second_tries: Family::default(),
            site_second_tries: Family::default(),
            ratio: Family::default(),
            flows: Mutex::default(),
        }))
    }
}

impl RoutingMetrics {
    /// Registers all routing metrics with `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let inner = &self.0;
        registry.register(
            "bulla_keyless_site_request_duration_seconds",
            "Duration of requests forwarded to nodes, including timeouts and lost connections, by site",
            inner.durations.clone(),
        );
        registry.register(
            "bulla_keyless_site_requests_in_flight",
            "Forwarded requests in flight, by site",
            inner.in_flight.clone(),
        );
        registry.register(
            "bulla_keyless_site_requests_in_flight_max",
            "Maximum requests in flight to the reachable nodes of a site",
            inner.in_flight_max.clone(),
        );
        registry.register(
            "bulla_keyless_site_nodes_up",
            "Other nodes that are reachable, by site",
            inner.nodes_up.clone(),
        );
        registry.register(
            "bulla_keyless_site_connections",
            "Connections of this node to other nodes, by site; nodes without a connection are reached through other nodes \
             of the pod",
            inner.connections.clone(),
        );
        registry.register(
            "bulla_keyless_relayed_requests",
            "Requests of other nodes of the pod that this node forwarded",
            inner.relayed.clone(),
        );
        registry.register(
            "bulla_keyless_site_relayed_requests",
            "Requests to nodes of the site that another node of the pod forwarded",
            inner.relayed_by_others.clone(),
        );
        registry.register(
            "bulla_keyless_site_round_trip_seconds",
            "Last measured round-trip time to a node of the site",
            inner.round_trip.clone(),
        );
        registry.register(
            "bulla_keyless_site_errors",
            "Failed forwarded requests, by site and reason",
            inner.errors.clone(),
        );
        registry.register(
            "bulla_keyless_second_tries",
            "Second and third attempts at other nodes for one signature: retried, hedged, or refused by the retry budget",
            inner.second_tries.clone(),
        );
        registry.register(
            "bulla_keyless_site_second_tries",
            "Second and third attempts for one signature, by site: retried or hedged",
            inner.site_second_tries.clone(),
        );
        registry.register(
            "bulla_keyless_site_littles_law_ratio",
            "Little's law check of the last minute, by site: requests in flight divided by (requests started times their \
             duration); a value other than 1 means waiting that is not measured",
            inner.ratio.clone(),
        );
    }

    /// Samples the requests to every site. Removes the metrics of sites without nodes.
    pub(super) fn sample(&self, now: Instant) {
        self.0.flows.lock().retain(|site, flow| {
            let flow = flow.upgrade();
            match &flow {
                Some(flow) => flow.sample(now),
                None => drop(self.0.ratio.remove(&SiteLabel { site: site.clone() })),
            }
            flow.is_some()
        });
    }

    /// Returns the flow monitor of a site, over all its nodes.
    fn flow(&self, label: &SiteLabel) -> Arc<FlowMonitor> {
        let mut flows = self.0.flows.lock();
        if let Some(flow) = flows.get(&label.site).and_then(Weak::upgrade) {
            return flow;
        }
        let flow = Arc::new(FlowMonitor::new(self.0.ratio.get_or_create(label).clone()));
        flows.insert(label.site.clone(), Arc::downgrade(&flow));
        flow
    }

    /// Counts a request that was forwarded for another node of the pod.
    pub(super) fn relayed(&self) {
        self.0.relayed.inc();
    }

    pub(super) fn second_try(&self, kind: &'static str) {
        self.0.second_tries.get_or_create(&KindLabel { kind }).inc();
    }

    /// Returns the metrics of one site.
    pub(super) fn of(&self, site: &str) -> SiteMetrics {
        let label = SiteLabel { site: site.to_owned() };
        SiteMetrics {
            durations: self.0.durations.get_or_create(&label).clone(),
            in_flight: self.0.in_flight.get_or_create(&label).clone(),
            in_flight_max: self.0.in_flight_max.get_or_create(&label).clone(),
            nodes_up: self.0.nodes_up.get_or_create(&label).clone(),
            connections: self.0.connections.get_or_create(&label).clone(),
            relayed: self.0.relayed_by_others.get_or_create(&label).clone(),
            round_trip: self.0.round_trip.get_or_create(&label).clone(),
            flow: self.flow(&label),
            site: label.site,
            all: self.clone(),
        }
    }
}

impl fmt::Debug for RoutingMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RoutingMetrics")
    }
}

pub(super) struct SiteMetrics {
    durations: Histogram,
    in_flight: Gauge,
    in_flight_max: Gauge,
    nodes_up: Gauge,
    connections: Gauge,
    relayed: Counter,
    round_trip: Gauge<f64, AtomicU64>,
    flow: Arc<FlowMonitor>,
    site: String,
    all: RoutingMetrics,
}

impl SiteMetrics {
    pub(super) fn began(&self) {
        self.in_flight.inc();
        self.flow.began(Instant::now());
    }

    pub(super) fn ended(&self, took: Duration) {
        self.in_flight.dec();
        self.flow.ended(Instant::now(), took);
        self.durations.observe(took.as_secs_f64());
    }

    pub(super) fn failed(&self, error: &PeerError) {
        let labels = ErrorLabels { site: self.site.clone(), error: error.name() };
        self.all.0.errors.get_or_create(&labels).inc();
    }

    /// Counts a retry or hedge at a node of this site.
    pub(super) fn second_try(&self, kind: &'static str) {
        let labels = SiteKindLabels { site: self.site.clone(), kind };
        self.all.0.site_second_tries.get_or_create(&labels).inc();
    }

    pub(super) fn round_trip(&self, measured: Duration) {
        self.round_trip.set(measured.as_secs_f64());
    }

    /// Counts a request that another node of the pod forwards.
    pub(super) fn relayed(&self) {
        self.relayed.inc();
    }

    /// Adds `change` to the number of connections to the site.
    pub(super) fn connected(&self, change: i64) {
        self.connections.inc_by(change);
    }

    /// Adds `change` to the number of reachable nodes of the site.
    pub(super) fn reached(&self, change: i64) {
        self.nodes_up.inc_by(change);
        self.in_flight_max.inc_by(change * NODE_MAX as i64);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::flow::SAMPLE_EVERY;

    fn ratio(metrics: &RoutingMetrics, site: &str) -> Option<f64> {
        let (mut registry, mut text) = (Registry::default(), String::new());
        metrics.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        let name = format!("bulla_keyless_site_littles_law_ratio{{site=\"{site}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
    }

    #[test]
    fn site_metrics_sum_stuck_requests_of_all_nodes_until_removed() {
        let metrics = RoutingMetrics::default();
        let (first, second, other) = (metrics.of("paris"), metrics.of("paris"), metrics.of("oslo"));
        first.began();
        first.ended(Duration::ZERO);
        metrics.sample(Instant::now());
        assert_eq!(ratio(&metrics, "paris").map(f64::round), Some(1.0));
        // One request at each of two nodes, in progress for a minute at the time of the sample.
        first.began();
        second.began();
        metrics.sample(Instant::now() + SAMPLE_EVERY * 12);
        let seen = ratio(&metrics, "paris").unwrap();
        assert!((120.0..123.0).contains(&seen), "120 s under way, and none ended: {seen}");
        assert_eq!(ratio(&metrics, "oslo"), Some(1.0));
        drop((first, other));
        metrics.sample(Instant::now());
        assert_eq!(ratio(&metrics, "oslo"), None);
        assert!(ratio(&metrics, "paris").is_some(), "it has a node still");
    }
}
