//! Metrics of the proxy.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http_relay::page::class_of;
use http_relay::relay::ByteCounters;
use http_relay::serve::Served;
use http_relay::upstream::Reuse;
use hyper::StatusCode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::access::Denied;
use super::requests::RequestMetrics;
use crate::certificate_store::CertificateStore;
use crate::minting::MintingMetrics;
use crate::permission::PermissionMetrics;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct EndLabel {
    end: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ClassLabel {
    status: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ConnectionLabel {
    connection: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct WhyLabel {
    why: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct DirectionLabel {
    direction: &'static str,
}

/// Result of a client's TLS handshake on an intercepted connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Handshake {
    Full,
    Resumed,
    NoLeaf,
    Late,
    Failed,
}

impl Handshake {
    const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Resumed => "resumed",
            Self::NoLeaf => "no-leaf",
            Self::Late => "late",
            Self::Failed => "failed",
        }
    }
}

/// How a client's connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    Closed,
    Broken,
    NoRequest,
    Refused,
    CutOff,
    /// The proxy's own upstream connection was redirected back to the proxy.
    Loop,
}

impl End {
    pub(super) fn of(served: Served) -> Self {
        match served {
            Served::Closed => Self::Closed,
            Served::Broken(_) => Self::Broken,
            Served::CutOff => Self::CutOff,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Broken => "broken",
            Self::NoRequest => "no-request",
            Self::Refused => "refused",
            Self::CutOff => "cut-off",
            Self::Loop => "loop",
        }
    }
}

/// Metrics of the proxy. Clones share them.
#[derive(Clone, Default)]
pub struct ProxyMetrics(Arc<MetricFamilies>);

impl fmt::Debug for ProxyMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyMetrics").finish_non_exhaustive()
    }
}

struct MetricFamilies {
    connections: Gauge,
    ends: Family<EndLabel, Counter>,
    handshakes: Family<OutcomeLabel, Counter>,
    requests: Family<ClassLabel, Histogram>,
    rejected: Counter,
    denied: Family<WhyLabel, Counter>,
    auto_tunnels: Counter,
    mirrored: Family<OutcomeLabel, Counter>,
    upstream_requests: Family<ConnectionLabel, Counter>,
    redirected: Counter,
    tunnels: Counter,
    held: Gauge,
    holds: Family<OutcomeLabel, Counter>,
    tunnel_bytes: Family<DirectionLabel, Counter>,
    rules: RequestMetrics,
    store: Arc<OnceLock<CertificateStore>>,
    minting: MintingMetrics,
    permission: PermissionMetrics,
}

impl Default for MetricFamilies {
    fn default() -> Self {
        // Buckets from 100 µs to about 100 s.
        let durations: fn() -> Histogram = || Histogram::new(exponential_buckets(0.0001, 2.0, 21));
        Self {
            connections: Gauge::default(),
            ends: Family::default(),
            handshakes: Family::default(),
            requests: Family::new_with_constructor(durations),
            rejected: Counter::default(),
            denied: Family::default(),
            auto_tunnels: Counter::default(),
            mirrored: Family::default(),
            upstream_requests: Family::default(),
            redirected: Counter::default(),
            tunnels: Counter::default(),
            held: Gauge::default(),
            holds: Family::default(),
            tunnel_bytes: Family::default(),
            rules: RequestMetrics::default(),
            store: Arc::default(),
            minting: MintingMetrics::default(),
            permission: PermissionMetrics::default(),
        }
    }
}

/// An increment of a gauge. Dropping the value decrements the gauge.
pub(super) struct GaugeGuard(Gauge);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl ProxyMetrics {
    /// Registers all metrics of the proxy in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let inner = &self.0;
        registry.register_collector(Box::new(StoreFigures(Arc::clone(&inner.store))));
        inner.minting.register(registry);
        inner.permission.register(registry);
        let registry = registry.sub_registry_with_prefix("bulla_intercept_proxy");
        inner.rules.register(registry);
        registry.register("connections", "Client connections", inner.connections.clone());
        registry.register("connection_ends", "Client connections that ended", inner.ends.clone());
        registry.register("handshakes", "TLS handshakes with clients", inner.handshakes.clone());
        registry.register(
            "request_duration_seconds",
            "Time from request headers to response headers",
            inner.requests.clone(),
        );
        registry.register("rejected", "Connections and requests rejected by a rule", inner.rejected.clone());
        registry.register(
            "denied",
            "Clients rejected because authentication is missing or failed",
            inner.denied.clone(),
        );
        registry.register(
            "upstream_requests",
            "Requests to upstreams, by reused or new connection",
            inner.upstream_requests.clone(),
        );
        registry.register(
            "auto_tunnels",
            "Connections passed through because their client rejected an earlier leaf certificate for the name",
            inner.auto_tunnels.clone(),
        );
        registry.register(
            "mirror_looks",
            "Connections to servers to mirror their certificates",
            inner.mirrored.clone(),
        );
        registry.register(
            "redirected",
            "Connections redirected by the firewall of this host",
            inner.redirected.clone(),
        );
        registry.register(
            "tunnels",
            "Connections passed through without interception",
            inner.tunnels.clone(),
        );
        registry.register("held", "Requests that wait for an approval", inner.held.clone());
        registry.register("holds", "Held requests that were decided, by outcome", inner.holds.clone());
        registry.register(
            "tunnel_octets",
            "Bytes of tunnels and upgraded connections",
            inner.tunnel_bytes.clone(),
        );
    }

    /// Returns the metrics of rules on requests.
    #[must_use]
    pub fn requests(&self) -> &RequestMetrics {
        &self.0.rules
    }

    pub(super) fn watch(&self, store: &CertificateStore) {
        let _ = self.0.store.set(store.clone());
    }

    pub(super) fn minting(&self) -> MintingMetrics {
        self.0.minting.clone()
    }

    pub(super) fn permission(&self) -> PermissionMetrics {
        self.0.permission.clone()
    }

    pub(super) fn connection(&self) -> GaugeGuard {
        self.0.connections.inc();
        GaugeGuard(self.0.connections.clone())
    }

    /// Counts a connection that was refused before it was served, by the reason of the refusal.
    pub(super) fn refused(&self, reason: inbound::Refusal) {
        self.0.ends.get_or_create(&EndLabel { end: reason.name() }).inc();
    }

    pub(super) fn ended(&self, end: End) {
        self.0.ends.get_or_create(&EndLabel { end: end.name() }).inc();
    }

    pub(super) fn handshake(&self, handshake: Handshake) {
        self.0.handshakes.get_or_create(&OutcomeLabel { outcome: handshake.name() }).inc();
    }

    pub(super) fn request(&self, status: StatusCode, took: Duration) {
        let status = class_of(status);
        self.0.requests.get_or_create(&ClassLabel { status }).observe(took.as_secs_f64());
    }

    pub(super) fn rejected(&self) {
        self.0.rejected.inc();
    }

    pub(super) fn redirected(&self) {
        self.0.redirected.inc();
    }

    pub(super) fn auto_tunnel(&self) {
        self.0.auto_tunnels.inc();
    }

    pub(super) fn count_mirror_probe(&self, outcome: &'static str) {
        self.0.mirrored.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub(super) fn denied(&self, denied: Denied) {
        self.0.denied.get_or_create(&WhyLabel { why: denied.name() }).inc();
    }

    /// Counts a held request until the returned value is dropped.
    pub(super) fn held(&self) -> GaugeGuard {
        self.0.held.inc();
        GaugeGuard(self.0.held.clone())
    }

    /// Counts the outcome of a hold.
    pub(super) fn hold_ended(&self, outcome: &'static str) {
        self.0.holds.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Returns the counters of pooled and new upstream connections.
    pub(super) fn reuse(&self) -> Reuse {
        let of = |connection| self.0.upstream_requests.get_or_create(&ConnectionLabel { connection }).clone();
        Reuse { pooled: of("kept"), made: of("new") }
    }

    pub(super) fn tunnel(&self) -> ByteCounters {
        self.0.tunnels.inc();
        self.upgraded()
    }

    pub(super) fn upgraded(&self) -> ByteCounters {
        let of = |direction| self.0.tunnel_bytes.get_or_create(&DirectionLabel { direction }).clone();
        ByteCounters { up: of("up"), down: of("down") }
    }
}

/// Exports the counters that the certificate store keeps, at each scrape.
#[derive(Debug)]
struct StoreFigures(Arc<OnceLock<CertificateStore>>);

impl Collector for StoreFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(store) = self.0.get() else { return Ok(()) };
        let counts = store.counts();
        let held = ConstGauge::new(i64::try_from(store.len()).unwrap_or(i64::MAX));
        let figures = [
            ("leaves_minted", "Leaf certificates minted", counts.minted),
            ("leaves_failed", "Leaf certificates that could not be minted", counts.failed),
            ("leaf_hits", "Leaf certificates served from memory", counts.hits),
            ("leaf_joins", "Callers that waited for the same leaf certificate to be minted", counts.joined),
            (
                "leaf_refusals",
                "Requests refused because a client requested too many new names",
                counts.refused,
            ),
        ];
        let second = counts.second;
        let figures = figures.into_iter().chain([
            ("store_found", "Leaf certificates found in the certificate store", second.found),
            ("store_awaited", "Leaf certificates that another proxy was minting", second.awaited),
            (
                "store_unopened",
                "Stored leaf certificates that could not be decrypted and were minted again",
                second.undecryptable,
            ),
            (
                "store_failures",
                "Operations on the certificate store that failed or timed out",
                second.failures,
            ),
            (
                "store_without",
                "Leaf certificates minted or refused without the certificate store",
                second.without,
            ),
        ]);
        for (name, help, count) in figures {
            let name = format!("bulla_intercept_{name}");
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_descriptor(&name, help, None, counter.metric_type())?)?;
        }
        let unavailable = ConstGauge::new(i64::from(second.unavailable));
        unavailable.encode(encoder.encode_descriptor(
            "bulla_intercept_store_away",
            "1 if the certificate store is unavailable",
            None,
            unavailable.metric_type(),
        )?)?;
        held.encode(encoder.encode_descriptor(
            "bulla_intercept_leaves",
            "Leaf certificates in memory",
            None,
            held.metric_type(),
        )?)
    }
}
