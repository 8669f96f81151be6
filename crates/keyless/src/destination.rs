//! Metrics of requests to external keys, by destination: a token of a security module, or a cloud's key service. There are no
//! metrics by key, because there may be thousands.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use keys::{CallLimit, Destination as Named};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::flow::{FlowMonitor, FlowRatioGauge};
use crate::limits::{REMOTE_MAX, REMOTE_PER_KEY_MAX};
use crate::refusal::Refusal;

/// Maximum destinations with metrics of their own; all others share [`OTHER`].
const DESTINATIONS_MAX: usize = 1_000;
/// Destination of keys that name no destination, and of all destinations beyond [`DESTINATIONS_MAX`].
const OTHER: &str = "other";

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Label {
    destination: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct KindLabels {
    destination: String,
    kind: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ErrorLabels {
    destination: String,
    error: &'static str,
}

/// Metrics by destination: at most [`DESTINATIONS_MAX`], and [`OTHER`] for the rest.
pub(crate) struct Destinations {
    durations: Family<Label, Histogram, fn() -> Histogram>,
    in_flight: Family<Label, Gauge>,
    in_flight_max: Family<Label, Gauge>,
    calls_max: Family<Label, Gauge>,
    refusals: Family<KindLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    ratio: Family<Label, FlowRatioGauge>,
    all: Mutex<HashMap<String, Arc<Destination>>>,
}

/// Returns a histogram with buckets from 128 µs to 8 s, each twice the previous.
fn durations() -> Histogram {
    Histogram::new(exponential_buckets(0.000_128, 2.0, 17))
}

impl Default for Destinations {
    fn default() -> Self {
        Self {
            durations: Family::new_with_constructor(durations),
            in_flight: Family::default(),
            in_flight_max: Family::default(),
            calls_max: Family::default(),
            refusals: Family::default(),
            errors: Family::default(),
            ratio: Family::default(),
            all: Mutex::default(),
        }
    }
}

impl Destinations {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "bulla_keyless_destination_request_duration_seconds",
            "Duration of requests to security modules and cloud key services, including failed and abandoned requests",
            self.durations.clone(),
        );
        registry.register(
            "bulla_keyless_destination_requests_in_flight",
            "Requests in flight to a security module or cloud key service, including queued requests",
            self.in_flight.clone(),
        );
        registry.register(
            "bulla_keyless_destination_requests_in_flight_max",
            "Maximum requests in flight to the keys of the destination",
            self.in_flight_max.clone(),
        );
        registry.register(
            "bulla_keyless_destination_calls_max",
            "Maximum concurrent calls to the destination; further requests are queued",
            self.calls_max.clone(),
        );
        registry.register(
            "bulla_keyless_destination_refusals",
            "Requests refused because a limit was reached, by destination and limit",
            self.refusals.clone(),
        );
        registry.register(
            "bulla_keyless_destination_errors",
            "Failed requests, by destination and reason",
            self.errors.clone(),
        );
        registry.register(
            "bulla_keyless_destination_littles_law_ratio",
            "Little's law check of the last minute, by destination: requests in flight divided by (requests started times \
             their duration); a value other than 1 means waiting that is not measured",
            self.ratio.clone(),
        );
    }

    /// Samples the requests to each destination. Call it every [`SAMPLE_EVERY`](crate::flow::SAMPLE_EVERY).
    pub(crate) fn sample(&self, now: Instant) {
        let all: Vec<_> = self.all.lock().values().cloned().collect();
        all.iter().for_each(|destination| destination.flow.sample(now));
    }

    /// Returns the destination of a key. The returned value counts the key at the destination until dropped.
    pub(crate) fn of(&self, named: Option<Named<'_>>) -> KeyDestination {
        let name = named.map_or(OTHER, |named| named.name);
        let destination = {
            let mut all = self.all.lock();
            let is_full = all.len() >= DESTINATIONS_MAX && !all.contains_key(name);
            let name: String = if is_full { OTHER.into() } else { name.into() };
            Arc::clone(all.entry(name).or_insert_with_key(|name| self.made(name)))
        };
        let at_once = named.map_or(CallLimit::All(REMOTE_MAX), |named| named.at_once);
        KeyDestination::new(destination, at_once)
    }

    fn made(&self, name: &str) -> Arc<Destination> {
        let label = Label { destination: name.to_owned() };
        let kind = |(_, kind): &(Refusal, &'static str)| KindLabels { destination: name.to_owned(), kind };
        Arc::new(Destination {
            durations: self.durations.get_or_create(&label).clone(),
            in_flight: self.in_flight.get_or_create(&label).clone(),
            in_flight_max: self.in_flight_max.get_or_create(&label).clone(),
            calls_max: self.calls_max.get_or_create(&label).clone(),
            refusals: Refusal::ALL.iter().map(|of| self.refusals.get_or_create(&kind(of)).clone()).collect(),
            errors: self.errors.clone(),
            flow: FlowMonitor::new(self.ratio.get_or_create(&label).clone()),
            keys: Mutex::default(),
            name: name.to_owned(),
        })
    }
}

struct Destination {
    name: String,
    durations: Histogram,
    in_flight: Gauge,
    in_flight_max: Gauge,
    calls_max: Gauge,
    refusals: Vec<Counter>,
    errors: Family<ErrorLabels, Counter>,
    flow: FlowMonitor,
    /// Number of existing [`KeyDestination`]s: keys of this destination that were used at least once.
    keys: Mutex<usize>,
}

impl Destination {
    /// Updates the number of keys, and the limits that depend on this number.
    fn count(&self, count: impl Fn(usize) -> usize, at_once: CallLimit) {
        let mut locked = self.keys.lock();
        let keys = count(*locked);
        *locked = keys;
        self.in_flight_max.set((keys * REMOTE_PER_KEY_MAX).min(REMOTE_MAX) as i64);
        self.calls_max.set(match at_once {
            CallLimit::OfKey(calls) => keys.saturating_mul(calls).min(REMOTE_MAX),
            CallLimit::All(calls) => calls,
        } as i64);
    }
}

/// The destination of one key. The destination's limit of concurrent requests grows with its keys.
pub(crate) struct KeyDestination {
    destination: Arc<Destination>,
    at_once: CallLimit,
}

impl KeyDestination {
    fn new(destination: Arc<Destination>, at_once: CallLimit) -> Self {
        destination.count(|keys| keys + 1, at_once);
        Self { destination, at_once }
    }

    pub(crate) fn refused(&self, refusal: Refusal) {
        self.destination.refusals[refusal as usize].inc();
    }

    /// Counts a request as in progress until the returned [`DestinationCall`] is dropped.
    pub(crate) fn began(&self) -> DestinationCall {
        let (destination, now) = (Arc::clone(&self.destination), Instant::now());
        destination.in_flight.inc();
        destination.flow.began(now);
        DestinationCall { destination, began: now }
    }
}

impl Drop for KeyDestination {
    fn drop(&mut self) {
        self.destination.count(|keys| keys.saturating_sub(1), self.at_once);
    }
}

impl fmt::Debug for KeyDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyDestination({})", self.destination.name)
    }
}

/// A request in progress to a destination.
pub(crate) struct DestinationCall {
    destination: Arc<Destination>,
    began: Instant,
}

impl DestinationCall {
    /// Records a failed connection attempt.
    pub(crate) fn failed(&self, error: &'static str) {
        let destination = self.destination.name.clone();
        self.destination.errors.get_or_create(&ErrorLabels { destination, error }).inc();
    }
}

impl Drop for DestinationCall {
    fn drop(&mut self) {
        let now = Instant::now();
        let took = now.saturating_duration_since(self.began);
        self.destination.in_flight.dec();
        self.destination.durations.observe(took.as_secs_f64());
        self.destination.flow.ended(now, took);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn figure(destinations: &Destinations, name: &str) -> Option<f64> {
        let (mut registry, mut text) = (Registry::default(), String::new());
        destinations.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    }

    #[test]
    fn limits_grow_per_cloud_key_and_stay_fixed_per_token() {
        let all = Destinations::default();
        let max = |name: &str, of: &str| {
            figure(&all, &format!("bulla_keyless_destination_{name}_max{{destination=\"{of}\"}}"))
        };
        let cloud = Named { name: "aws-kms:eu-west-1", at_once: CallLimit::OfKey(32) };
        let token = Named { name: "pkcs11:web", at_once: CallLimit::All(8) };
        let (first, second) = (all.of(Some(cloud)), all.of(Some(cloud)));
        let _token = (all.of(Some(token)), all.of(Some(token)));
        assert_eq!(max("requests_in_flight", "aws-kms:eu-west-1"), Some(8_192.0));
        assert_eq!((max("calls", "aws-kms:eu-west-1"), max("calls", "pkcs11:web")), (Some(64.0), Some(8.0)));
        drop(second);
        assert_eq!(max("calls", "aws-kms:eu-west-1"), Some(32.0));
        let many: Vec<KeyDestination> = (0..100).map(|_| all.of(Some(cloud))).collect();
        assert_eq!(max("requests_in_flight", "aws-kms:eu-west-1"), Some(REMOTE_MAX as f64));
        drop((first, many));
        assert_eq!(max("requests_in_flight", "aws-kms:eu-west-1"), Some(0.0));
    }

    #[test]
    fn excess_destination_names_share_one_entry() {
        let all = Destinations::default();
        for number in 0..2 * DESTINATIONS_MAX {
            let name = format!("azure-key-vault:{number}");
            all.of(Some(Named { name: &name, at_once: CallLimit::OfKey(1) })).began();
        }
        assert_eq!(all.all.lock().len(), DESTINATIONS_MAX + 1);
        let beyond =
            figure(&all, "bulla_keyless_destination_request_duration_seconds_count{destination=\"other\"}");
        assert_eq!(beyond, Some(DESTINATIONS_MAX as f64));
    }

    #[test]
    fn stuck_requests_raise_the_littles_law_ratio() {
        let all = Destinations::default();
        let destination = all.of(None);
        let stuck = destination.began();
        all.sample(Instant::now() + crate::flow::SAMPLE_EVERY);
        let ratio = || figure(&all, "bulla_keyless_destination_littles_law_ratio{destination=\"other\"}");
        assert!(ratio().unwrap() > 5.0, "{:?}", ratio());
        stuck.failed("late");
        drop(stuck);
        let error = "bulla_keyless_destination_errors_total{destination=\"other\",error=\"late\"}";
        assert_eq!(figure(&all, error), Some(1.0));
        assert_eq!(
            figure(&all, "bulla_keyless_destination_requests_in_flight{destination=\"other\"}"),
            Some(0.0)
        );
    }
}
