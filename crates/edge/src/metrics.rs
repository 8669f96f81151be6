//! Metrics of the TLS terminator: handshakes, connections, requests, servers and certificates.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_relay::page::class_of;
use http_relay::relay::ByteCounters;
use http_relay::upstream::Reuse;
use hyper::StatusCode;
use keys::SignError;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::group::Group;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct EndLabel {
    end: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct DirectionLabel {
    direction: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct StatusLabel {
    status: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ErrorLabel {
    error: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ConnectionLabel {
    connection: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ServerLabel {
    upstream: Arc<str>,
    server: Arc<str>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ServerOutcomeLabel {
    upstream: Arc<str>,
    server: Arc<str>,
    outcome: &'static str,
}

/// Outcome of a TLS handshake, as a metric label.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Handshake {
    /// A full handshake, with a signature.
    Full,
    /// A session resumed by a ticket, without a signature.
    Resumed,
    /// No certificate matches the server name.
    UnknownName,
    /// The client sent no server name.
    NoName,
    /// The key service returned no signature.
    NotSigned,
    /// The handshake exceeded its timeout.
    Late,
    /// The client closed the connection or violated the protocol.
    Failed,
}

impl Handshake {
    const ALL: [Self; 7] = [
        Self::Full,
        Self::Resumed,
        Self::UnknownName,
        Self::NoName,
        Self::NotSigned,
        Self::Late,
        Self::Failed,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Resumed => "resumed",
            Self::UnknownName => "unknown-name",
            Self::NoName => "no-name",
            Self::NotSigned => "not-signed",
            Self::Late => "late",
            Self::Failed => "failed",
        }
    }
}

/// Outcome of a connection, as a metric label.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// Both sides closed the connection normally.
    Closed,
    /// The connection exceeded its idle timeout.
    Idle,
    /// One side's connection broke.
    Broken,
    /// The handshake failed.
    NoHandshake,
    /// The client's certificate is revoked, or its revocation status is unknown.
    ClientRefused,
    /// No route matches the server name.
    NoRoute,
    /// No server of the upstream can be reached.
    NoUpstream,
    /// The client sent no valid HTTP request.
    NoRequest,
    /// The terminator stopped before the connection ended.
    CutOff,
}

impl End {
    const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::Broken => "broken",
            Self::NoHandshake => "no-handshake",
            Self::ClientRefused => "client-refused",
            Self::NoRoute => "no-route",
            Self::NoUpstream => "no-upstream",
            Self::NoRequest => "no-request",
            Self::CutOff => "cut-off",
        }
    }
}

/// The terminator's metrics. Clones share them.
#[derive(Clone)]
pub struct EdgeMetrics(Arc<MetricFamilies>);

struct MetricFamilies {
    connections: Gauge,
    connections_max: Gauge,
    refused: Family<ReasonLabel, Counter>,
    ends: Family<EndLabel, Counter>,
    handshakes: Family<OutcomeLabel, Counter>,
    handshake_durations: Family<OutcomeLabel, Histogram, fn() -> Histogram>,
    signatures: Family<OutcomeLabel, Counter>,
    relayed_bytes_family: Family<DirectionLabel, Counter>,
    relayed_bytes: ByteCounters,
    certificates: Gauge,
    broken_files: Gauge,
    broken_ticket_keys: Gauge,
    broken_routes: Gauge,
    inventory_unavailable: Gauge,
    stapled: Gauge,
    unstapled: Gauge,
    staple_fetches: Family<OutcomeLabel, Counter>,
    first_expiry: Gauge,
    requests: Family<StatusLabel, Histogram, fn() -> Histogram>,
    requests_in_flight: Gauge,
    upstream_requests: Family<ConnectionLabel, Counter>,
    upstream_errors: Family<ErrorLabel, Counter>,
    access_lines_dropped: Counter,
    servers_up: Family<ServerLabel, Gauge>,
    server_uses: Family<ServerOutcomeLabel, Counter>,
    /// Upstreams whose servers the gauges show.
    watched: Mutex<Vec<Arc<Group>>>,
}

/// Returns a histogram with buckets from 128 µs to 16 s, each twice the previous.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.000_128, 2.0, 18))
}

impl Default for EdgeMetrics {
    fn default() -> Self {
        let relayed_bytes_family = Family::<DirectionLabel, Counter>::default();
        let relayed_bytes =
            |direction| relayed_bytes_family.get_or_create(&DirectionLabel { direction }).clone();
        let relayed_bytes =
            ByteCounters { up: relayed_bytes("to-upstream"), down: relayed_bytes("to-client") };
        let handshakes = Family::<OutcomeLabel, Counter>::default();
        for outcome in Handshake::ALL {
            // Create every label value at startup, so that rates can be computed from 0.
            drop(handshakes.get_or_create(&OutcomeLabel { outcome: outcome.name() }));
        }
        Self(Arc::new(MetricFamilies {
            connections: Gauge::default(),
            connections_max: Gauge::default(),
            refused: Family::default(),
            ends: Family::default(),
            handshakes,
            handshake_durations: Family::new_with_constructor(durations),
            signatures: Family::default(),
            relayed_bytes_family,
            relayed_bytes,
            certificates: Gauge::default(),
            broken_files: Gauge::default(),
            broken_ticket_keys: Gauge::default(),
            broken_routes: Gauge::default(),
            inventory_unavailable: Gauge::default(),
            stapled: Gauge::default(),
            unstapled: Gauge::default(),
            staple_fetches: Family::default(),
            first_expiry: Gauge::default(),
            requests: Family::new_with_constructor(durations),
            requests_in_flight: Gauge::default(),
            upstream_requests: Family::default(),
            upstream_errors: Family::default(),
            access_lines_dropped: Counter::default(),
            servers_up: Family::default(),
            server_uses: Family::default(),
            watched: Mutex::default(),
        }))
    }
}

impl EdgeMetrics {
    /// Registers all metrics of the terminator in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let inner = &self.0;
        let gauges = [
            ("connections", "Connections open", &inner.connections),
            ("connections_max", "Maximum open connections", &inner.connections_max),
            ("requests_in_flight", "Requests in flight", &inner.requests_in_flight),
            ("certificates", "Certificate chains that are loaded", &inner.certificates),
            (
                "broken_certificate_files",
                "Certificate files that could not be loaded after their last change",
                &inner.broken_files,
            ),
            (
                "broken_ticket_keys",
                "1 if the ticket key file could not be read at the last check",
                &inner.broken_ticket_keys,
            ),
            (
                "broken_routes",
                "1 if the routes in the configuration file could not be read at the last check",
                &inner.broken_routes,
            ),
            (
                "inventory_away",
                "1 if the last request to the server for managed certificates failed",
                &inner.inventory_unavailable,
            ),
            ("stapled_certificates", "Certificate chains served with an OCSP staple", &inner.stapled),
            (
                "bare_must_staple_certificates",
                "Certificate chains that require an OCSP staple but have none; clients reject them",
                &inner.unstapled,
            ),
            (
                "first_expiry_timestamp_seconds",
                "Earliest expiry of the loaded certificate chains, in Unix time; 0 without one",
                &inner.first_expiry,
            ),
        ];
        for (name, help, gauge) in gauges {
            registry.register(format!("bulla_intercept_edge_{name}"), help, gauge.clone());
        }
        registry.register(
            "bulla_intercept_edge_refused_connections",
            "Refused connections, by reason",
            inner.refused.clone(),
        );
        registry.register(
            "bulla_intercept_edge_connection_ends",
            "Closed connections, by reason",
            inner.ends.clone(),
        );
        registry.register(
            "bulla_intercept_edge_handshakes",
            "TLS handshakes by outcome",
            inner.handshakes.clone(),
        );
        registry.register(
            "bulla_intercept_edge_handshake_duration_seconds",
            "TLS handshake duration, by outcome",
            inner.handshake_durations.clone(),
        );
        registry.register(
            "bulla_intercept_edge_signatures",
            "Signatures requested from key services, by outcome",
            inner.signatures.clone(),
        );
        registry.register(
            "bulla_intercept_edge_staple_fetches",
            "OCSP responses requested from responders, by outcome",
            inner.staple_fetches.clone(),
        );
        registry.register(
            "bulla_intercept_edge_request_duration_seconds",
            "Time from request headers to response headers, by status class",
            inner.requests.clone(),
        );
        registry.register(
            "bulla_intercept_edge_upstream_requests",
            "Requests to upstreams, by reused or new connection",
            inner.upstream_requests.clone(),
        );
        registry.register(
            "bulla_intercept_edge_upstream_errors",
            "Requests without a response from an upstream, by error name of RFC 9209",
            inner.upstream_errors.clone(),
        );
        registry.register(
            "bulla_intercept_edge_access_lines_dropped",
            "Access log lines dropped because the queue was full or the write failed",
            inner.access_lines_dropped.clone(),
        );
        registry.register(
            "bulla_intercept_edge_upstream_server_up",
            "1 if a server of an upstream receives traffic, 0 if health checks or failures took it out",
            inner.servers_up.clone(),
        );
        registry.register(
            "bulla_intercept_edge_upstream_server_uses",
            "Connections and requests to a server of an upstream, by outcome",
            inner.server_uses.clone(),
        );
        registry.register(
            "bulla_intercept_edge_passed_octets",
            "Bytes forwarded, by direction",
            inner.relayed_bytes_family.clone(),
        );
    }

    /// Sets the gauges of server state for `groups`, and removes the gauges of all other upstreams.
    pub(super) fn servers(&self, groups: &[Arc<Group>]) {
        let mut watched = self.0.watched.lock();
        let is_same = watched.len() == groups.len()
            && watched.iter().zip(groups).all(|(one, other)| Arc::ptr_eq(one, other));
        if !is_same {
            self.0.servers_up.clear();
            *watched = groups.to_vec();
        }
        let now = Instant::now();
        for group in groups {
            for server in group.servers() {
                let label =
                    ServerLabel { upstream: Arc::clone(group.name()), server: Arc::clone(&server.label) };
                self.0.servers_up.get_or_create(&label).set(server.is_up(now).into());
            }
        }
    }

    pub(super) fn server_answered(&self, upstream: &Arc<str>, server: &Arc<str>) {
        self.server_used(upstream, server, "answered");
    }

    pub(super) fn server_failed(&self, upstream: &Arc<str>, server: &Arc<str>) {
        self.server_used(upstream, server, "failed");
    }

    fn server_used(&self, upstream: &Arc<str>, server: &Arc<str>, outcome: &'static str) {
        let label =
            ServerOutcomeLabel { upstream: Arc::clone(upstream), server: Arc::clone(server), outcome };
        self.0.server_uses.get_or_create(&label).inc();
    }

    pub(super) fn set_connections_max(&self, max: usize) {
        self.0.connections_max.set(max as i64);
    }

    /// Counts a connection until dropped.
    pub(super) fn connection(&self) -> GaugeGuard {
        self.0.connections.inc();
        GaugeGuard(self.0.connections.clone())
    }

    pub(super) fn refused(&self, reason: &'static str) {
        self.0.refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(super) fn ended(&self, end: End) {
        self.0.ends.get_or_create(&EndLabel { end: end.name() }).inc();
    }

    pub(super) fn handshake(&self, outcome: Handshake, took: Duration) {
        let label = OutcomeLabel { outcome: outcome.name() };
        self.0.handshakes.get_or_create(&label).inc();
        self.0.handshake_durations.get_or_create(&label).observe(took.as_secs_f64());
    }

    pub(super) fn signed(&self, signed: &Result<Vec<u8>, SignError>) {
        let outcome = match signed {
            Ok(_) => "made",
            Err(SignError::Late) => "late",
            Err(SignError::Unavailable(_)) => "unavailable",
            Err(SignError::Failed(_)) => "failed",
        };
        self.0.signatures.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts a request as in progress until dropped.
    pub(super) fn request(&self) -> GaugeGuard {
        self.0.requests_in_flight.inc();
        GaugeGuard(self.0.requests_in_flight.clone())
    }

    pub(super) fn answered(&self, status: StatusCode, took: Duration) {
        let status = class_of(status);
        self.0.requests.get_or_create(&StatusLabel { status }).observe(took.as_secs_f64());
    }

    pub(super) fn upstream_error(&self, error: &'static str) {
        self.0.upstream_errors.get_or_create(&ErrorLabel { error }).inc();
    }

    pub(super) fn reuse(&self) -> Reuse {
        let of = |connection| self.0.upstream_requests.get_or_create(&ConnectionLabel { connection }).clone();
        Reuse { pooled: of("kept"), made: of("new") }
    }

    pub(super) fn access_lines_dropped(&self) -> &Counter {
        &self.0.access_lines_dropped
    }

    pub(super) fn relayed_bytes(&self) -> &ByteCounters {
        &self.0.relayed_bytes
    }

    /// Sets the number of loaded chains, the number of broken files, and the earliest expiry of a chain (Unix seconds). A file is
    /// broken if the chain or the OCSP response in it could not be used after its last change.
    pub(super) fn certificates(&self, certificates: usize, broken_files: usize, first_expiry: Option<i64>) {
        self.0.certificates.set(certificates as i64);
        self.0.broken_files.set(broken_files as i64);
        self.0.first_expiry.set(first_expiry.unwrap_or(0));
    }

    /// Sets the number of chains with an OCSP response, and the number of chains that lack a required response.
    pub(super) fn staples(&self, stapled: usize, unstapled: usize) {
        self.0.stapled.set(stapled as i64);
        self.0.unstapled.set(unstapled as i64);
    }

    pub(super) fn staple_fetched(&self, outcome: &'static str) {
        self.0.staple_fetches.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Sets whether the server failed to return the inventory of managed certificates.
    pub fn set_inventory_unavailable(&self, unavailable: bool) {
        self.0.inventory_unavailable.set(unavailable.into());
    }

    /// Sets whether the routes in the configuration file are invalid.
    pub fn set_routes_broken(&self, broken: bool) {
        self.0.broken_routes.set(broken.into());
    }

    pub(super) fn set_ticket_keys_broken(&self, broken: bool) {
        self.0.broken_ticket_keys.set(broken.into());
    }
}

impl fmt::Debug for EdgeMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EdgeMetrics")
    }
}

/// A connection or a request in progress, counted until dropped.
#[derive(Debug)]
pub(super) struct GaugeGuard(Gauge);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
