//! Metrics of the key service, by operation and cost class. Arrivals, service time and requests in progress together permit a check
//! of L = λW.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use keys::{BATCH_KINDS, Batches};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::destination::Destinations;
use crate::flow::FlowRatioGauge;
use crate::limits::REMOTE_MAX;
use crate::operation::OPERATIONS;
use crate::refusal::Refusal;
use crate::stage::{Cost, LaneFigures, Responder, Stage};
use crate::traces::Traces;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OpcodeLabel {
    opcode: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ErrorLabels {
    opcode: &'static str,
    error: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct TenantLabel {
    tenant: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct TenantKindLabels {
    tenant: String,
    kind: &'static str,
}

#[derive(Clone, Debug)]
pub(crate) struct TenantCounters {
    pub(crate) requests: Counter,
    pub(crate) in_flight: Gauge,
    pub(crate) in_flight_max: Gauge,
    /// Total duration of requests in seconds.
    pub(crate) took: Counter<f64, AtomicU64>,
    pub(crate) queued: Histogram,
    pub(crate) ratio: FlowRatioGauge,
    refusals: Vec<Counter>,
}

impl TenantCounters {
    pub(crate) fn refused(&self, refusal: Refusal) {
        self.refusals[refusal as usize].inc();
    }
}

/// The metrics of the key service. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<MetricFamilies>);

struct MetricFamilies {
    durations: Family<OpcodeLabel, Histogram, fn() -> Histogram>,
    /// Histograms of the request durations, by the index of the operation in [`OPERATIONS`].
    durations_by_operation: Vec<Histogram>,
    errors: Family<ErrorLabels, Counter>,
    tenant_requests: Family<TenantLabel, Counter>,
    tenant_refusals: Family<TenantKindLabels, Counter>,
    tenant_in_flight: Family<TenantLabel, Gauge>,
    tenant_in_flight_max: Family<TenantLabel, Gauge>,
    tenant_took: Family<TenantLabel, Counter<f64, AtomicU64>>,
    tenant_queued: Family<TenantLabel, Histogram, fn() -> Histogram>,
    ratio: Family<TenantLabel, FlowRatioGauge>,
    in_flight: Family<OpcodeLabel, Gauge>,
    in_flight_by_operation: Vec<Gauge>,
    queued: Family<OpcodeLabel, Gauge>,
    queued_by_operation: Vec<Gauge>,
    refusals: Family<KindLabel, Counter>,
    refusals_by_kind: Vec<Counter>,
    opcode_refusals: Family<OpcodeLabel, Counter>,
    opcode_refusals_by_operation: Vec<Counter>,
    remote: Gauge,
    connections: Gauge,
    connections_max: Gauge,
    ends: Family<KindLabel, Counter>,
    keys: Gauge,
    broken_files: Gauge,
    traces: Traces,
    destinations: Destinations,
    /// Functions that register the metrics of other components, called by [`Metrics::register`].
    others: Mutex<Vec<Registration>>,
}

type Registration = Box<dyn Fn(&mut Registry) + Send>;

/// Returns a histogram with buckets from 16 µs to 4 s, each twice the previous.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.000_016, 2.0, 19))
}

impl Default for Metrics {
    fn default() -> Self {
        let durations = Family::<OpcodeLabel, Histogram, fn() -> Histogram>::new_with_constructor(durations);
        let in_flight = Family::<OpcodeLabel, Gauge>::default();
        let refusals = Family::<KindLabel, Counter>::default();
        let labels = || OPERATIONS.iter().map(|(_, opcode, _)| OpcodeLabel { opcode });
        let durations_by_operation = labels().map(|label| durations.get_or_create(&label).clone()).collect();
        let in_flight_by_operation = labels().map(|label| in_flight.get_or_create(&label).clone()).collect();
        let queued = Family::<OpcodeLabel, Gauge>::default();
        let queued_by_operation = labels().map(|label| queued.get_or_create(&label).clone()).collect();
        let counter =
            |(_, kind): &(Refusal, &'static str)| refusals.get_or_create(&KindLabel { kind }).clone();
        let refusals_by_kind = Refusal::ALL.iter().map(counter).collect();
        let opcode_refusals = Family::<OpcodeLabel, Counter>::default();
        let opcode_refusals_by_operation =
            labels().map(|label| opcode_refusals.get_or_create(&label).clone()).collect();
        Self(Arc::new(MetricFamilies {
            durations,
            durations_by_operation,
            errors: Family::default(),
            tenant_requests: Family::default(),
            tenant_refusals: Family::default(),
            tenant_in_flight: Family::default(),
            tenant_in_flight_max: Family::default(),
            tenant_took: Family::default(),
            tenant_queued: Family::new_with_constructor(self::durations),
            ratio: Family::default(),
            in_flight,
            in_flight_by_operation,
            queued,
            queued_by_operation,
            refusals,
            refusals_by_kind,
            opcode_refusals,
            opcode_refusals_by_operation,
            remote: Gauge::default(),
            connections: Gauge::default(),
            connections_max: Gauge::default(),
            ends: Family::default(),
            keys: Gauge::default(),
            broken_files: Gauge::default(),
            traces: Traces::default(),
            destinations: Destinations::default(),
            others: Mutex::default(),
        }))
    }
}

impl Metrics {
    /// Registers all metrics of the key service with `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let inner = &self.0;
        registry.register(
            "bulla_keyless_request_duration_seconds",
            "Request duration, by opcode, errors included",
            inner.durations.clone(),
        );
        registry.register("bulla_keyless_errors", "Error replies, by opcode and code", inner.errors.clone());
        registry.register(
            "bulla_keyless_requests_in_flight",
            "Requests in flight, by opcode",
            inner.in_flight.clone(),
        );
        registry.register(
            "bulla_keyless_requests_queued",
            "Requests queued for signing, by opcode",
            inner.queued.clone(),
        );
        registry.register(
            "bulla_keyless_refusals",
            "Requests refused because a limit was reached, by limit",
            inner.refusals.clone(),
        );
        registry.register(
            "bulla_keyless_opcode_refusals",
            "Requests refused because a limit was reached, by opcode",
            inner.opcode_refusals.clone(),
        );
        registry.register(
            "bulla_keyless_tenant_requests",
            "Requests received, by tenant",
            inner.tenant_requests.clone(),
        );
        registry.register(
            "bulla_keyless_tenant_refusals",
            "Requests refused because a limit was reached, by tenant and limit",
            inner.tenant_refusals.clone(),
        );
        registry.register(
            "bulla_keyless_tenant_requests_in_flight",
            "Requests in flight, by tenant",
            inner.tenant_in_flight.clone(),
        );
        registry.register(
            "bulla_keyless_tenant_requests_in_flight_max",
            "Maximum requests in flight of the tenant",
            inner.tenant_in_flight_max.clone(),
        );
        registry.register(
            "bulla_keyless_tenant_request_seconds",
            "Request duration, by tenant",
            inner.tenant_took.clone(),
        );
        registry.register(
            "bulla_keyless_tenant_queue_seconds",
            "Queue time of signatures, by tenant",
            inner.tenant_queued.clone(),
        );
        registry.register(
            "bulla_keyless_littles_law_ratio",
            "Little's law check of the last minute, by tenant: requests in flight divided by (requests received times \
             their duration); a value other than 1 means waiting that is not measured",
            inner.ratio.clone(),
        );
        registry.register(
            "bulla_keyless_elsewhere_in_flight",
            "Requests in flight to keys in other nodes, tokens or services",
            inner.remote.clone(),
        );
        let remote_max = Gauge::<i64>::default();
        remote_max.set(REMOTE_MAX as i64);
        registry.register(
            "bulla_keyless_elsewhere_in_flight_max",
            "Maximum requests in flight to keys in other nodes, \
         tokens or services",
            remote_max,
        );
        registry.register("bulla_keyless_connections", "Connections open", inner.connections.clone());
        registry.register(
            "bulla_keyless_connections_max",
            "Maximum open connections of all kinds",
            inner.connections_max.clone(),
        );
        registry.register(
            "bulla_keyless_connection_ends",
            "Closed connections, by reason",
            inner.ends.clone(),
        );
        registry.register("bulla_keyless_keys", "Available keys", inner.keys.clone());
        registry.register(
            "bulla_keyless_broken_key_files",
            "Key files that could not be loaded after their last change",
            inner.broken_files.clone(),
        );
        inner.traces.register(registry);
        inner.destinations.register(registry);
        inner.others.lock().iter().for_each(|add| add(registry));
    }

    /// Returns the traces of single requests.
    #[must_use]
    pub fn traces(&self) -> &Traces {
        &self.0.traces
    }

    /// Returns the metrics of external keys, by destination.
    pub(crate) fn destinations(&self) -> &Destinations {
        &self.0.destinations
    }

    /// Adds a function that registers further metrics. [`Self::register`] calls it.
    pub fn add_registration(&self, add: impl Fn(&mut Registry) + Send + 'static) {
        self.0.others.lock().push(Box::new(add));
    }

    /// Sets the number of keys, and of files without a usable key.
    pub fn keys(&self, keys: usize, broken_files: usize) {
        self.0.keys.set(keys as i64);
        self.0.broken_files.set(broken_files as i64);
    }

    pub(crate) fn began(&self, operation_index: usize) {
        self.0.in_flight_by_operation[operation_index].inc();
    }

    pub(crate) fn ended(&self, operation_index: usize, took: Duration) {
        self.0.in_flight_by_operation[operation_index].dec();
        self.0.durations_by_operation[operation_index].observe(took.as_secs_f64());
    }

    /// Counts a request that entered the queue.
    pub(crate) fn queued(&self, operation_index: usize) {
        self.0.queued_by_operation[operation_index].inc();
    }

    /// Counts a request that left the queue.
    pub(crate) fn dequeued(&self, operation_index: usize) {
        self.0.queued_by_operation[operation_index].dec();
    }

    /// Counts an error by operation and name. `operation_index` is `None` for unknown operations.
    pub(crate) fn error(&self, operation_index: Option<usize>, error: &'static str) {
        let opcode = operation_index.map_or("unknown", |operation_index| OPERATIONS[operation_index].1);
        self.0.errors.get_or_create(&ErrorLabels { opcode, error }).inc();
    }

    pub(crate) fn tenant(&self, tenant: &str) -> TenantCounters {
        let label = TenantLabel { tenant: tenant.to_owned() };
        let refusal = |(_, kind): &(Refusal, &'static str)| {
            let labels = TenantKindLabels { tenant: tenant.to_owned(), kind };
            self.0.tenant_refusals.get_or_create(&labels).clone()
        };
        TenantCounters {
            requests: self.0.tenant_requests.get_or_create(&label).clone(),
            in_flight: self.0.tenant_in_flight.get_or_create(&label).clone(),
            in_flight_max: self.0.tenant_in_flight_max.get_or_create(&label).clone(),
            took: self.0.tenant_took.get_or_create(&label).clone(),
            queued: self.0.tenant_queued.get_or_create(&label).clone(),
            refusals: Refusal::ALL.iter().map(refusal).collect(),
            ratio: self.0.ratio.get_or_create(&label).clone(),
        }
    }

    /// Removes the metrics of a deleted tenant.
    pub(crate) fn forget_tenant(&self, tenant: &str) {
        let label = TenantLabel { tenant: tenant.to_owned() };
        self.0.tenant_requests.remove(&label);
        self.0.tenant_in_flight.remove(&label);
        self.0.tenant_in_flight_max.remove(&label);
        self.0.tenant_took.remove(&label);
        self.0.tenant_queued.remove(&label);
        self.0.ratio.remove(&label);
        for (_, kind) in Refusal::ALL {
            self.0.tenant_refusals.remove(&TenantKindLabels { tenant: tenant.to_owned(), kind });
        }
    }

    pub(crate) fn refused(&self, refusal: Refusal) {
        self.0.refusals_by_kind[refusal as usize].inc();
    }

    /// Counts a rejected request by its operation. `operation_index` is the index of the operation in [`OPERATIONS`].
    pub(crate) fn opcode_refused(&self, operation_index: usize) {
        self.0.opcode_refusals_by_operation[operation_index].inc();
    }

    /// Counts a request to a remote key until the returned guard is dropped.
    pub(crate) fn remote(&self) -> Counted {
        self.0.remote.inc();
        Counted(self.0.remote.clone())
    }

    pub(crate) fn connections_max(&self, most: usize) {
        self.0.connections_max.set(most as i64);
    }

    /// Counts a connection until the returned guard is dropped.
    pub(crate) fn connection(&self) -> Counted {
        self.0.connections.inc();
        Counted(self.0.connections.clone())
    }

    pub(crate) fn connection_ended(&self, kind: &'static str) {
        self.0.ends.get_or_create(&KindLabel { kind }).inc();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// An increment of a gauge, undone when dropped.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Metrics of the cost classes of a stage, read at each scrape.
struct Lanes<A: Responder>(Stage<A>);

/// Registers the metrics of a stage with `metrics`.
pub(crate) fn register_stage<A: Responder>(metrics: &Metrics, stage: &Stage<A>) {
    let stage = stage.clone();
    metrics.add_registration(move |registry| registry.register_collector(Box::new(Lanes(stage.clone()))));
}

impl<A: Responder> fmt::Debug for Lanes<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lanes")
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct CostLabel {
    cost: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OutcomeLabels {
    cost: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct KeyTypeLabel {
    key_type: &'static str,
}

/// Encodes which key types are currently signed in batches.
fn encode_batches(encoder: &mut DescriptorEncoder<'_>, batches: Batches) -> Result<(), fmt::Error> {
    let help = "1 if signatures with this key type are made in batches; 0 after a faulty signature";
    let mut metric = encoder.encode_descriptor("bulla_keyless_batches", help, None, MetricType::Gauge)?;
    for kind in BATCH_KINDS {
        let made = if keys::batches_are_made(kind, batches) { 1.0 } else { 0.0 };
        let labels = KeyTypeLabel { key_type: kind.name() };
        ConstGauge::new(made).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

impl<A: Responder> Collector for Lanes<A> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = Cost::ALL.map(|cost| (cost, self.0.figures(cost)));
        let label = |cost: Cost| CostLabel { cost: cost.name() };
        let mut gauge = |name, help, value: &dyn Fn(Cost, &LaneFigures) -> f64| {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            all.iter().try_for_each(|(cost, figures)| {
                let labels = label(*cost);
                ConstGauge::new(value(*cost, figures)).encode(metric.encode_family(&labels)?)
            })
        };
        gauge("bulla_keyless_stage_waiting", "Queued signatures, by cost class", &|_, figures| {
            figures.waiting as f64
        })?;
        gauge("bulla_keyless_stage_running", "Signatures in progress, by cost class", &|_, figures| {
            figures.running as f64
        })?;
        gauge("bulla_keyless_stage_working", "Busy signing workers, by cost class", &|_, figures| {
            figures.working as f64
        })?;
        gauge("bulla_keyless_stage_waiting_max", "Maximum queued signatures, by cost class", &|cost, _| {
            cost.waiting_max() as f64
        })?;
        gauge("bulla_keyless_stage_running_max", "Maximum signing workers, by cost class", &|cost, _| {
            self.0.running_max(cost) as f64
        })?;
        let mut metric = encoder.encode_descriptor(
            "bulla_keyless_stage_jobs",
            "Signatures, by cost class and outcome",
            None,
            MetricType::Counter,
        )?;
        for (cost, figures) in &all {
            let outcomes = [
                ("done", figures.done),
                ("refused", figures.refused),
                ("late", figures.late),
                ("unwanted", figures.unwanted),
            ];
            for (outcome, count) in outcomes {
                let labels = OutcomeLabels { cost: cost.name(), outcome };
                ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
            }
        }
        encode_batches(&mut encoder, self.0.batches())?;
        let counts: [(&str, &str, fn(&LaneFigures) -> u64); 2] = [
            ("bulla_keyless_stage_batched", "Signatures made in batches, by cost class", |figures| {
                figures.batched
            }),
            (
                "bulla_keyless_stage_faulty",
                "Faulty signatures made in batches, which were discarded, by cost class",
                |figures| figures.faulty,
            ),
        ];
        for (name, help, of) in counts {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (cost, figures) in &all {
                ConstCounter::new(of(figures)).encode(metric.encode_family(&label(*cost))?)?;
            }
        }
        let seconds: [(&str, &str, fn(&LaneFigures) -> Duration); 2] = [
            ("bulla_keyless_stage_busy_seconds", "Time spent signing, by cost class", |figures| figures.busy),
            ("bulla_keyless_stage_queue_seconds", "Queue time of signatures, by cost class", |figures| {
                figures.waited
            }),
        ];
        for (name, help, of) in seconds {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (cost, figures) in &all {
                ConstCounter::new(of(figures).as_secs_f64()).encode(metric.encode_family(&label(*cost))?)?;
            }
        }
        Ok(())
    }
}
