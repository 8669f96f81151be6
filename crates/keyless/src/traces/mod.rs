//! Traces of single requests: recent failures and slow requests, and recent requests with an ID.
//!
//! They are stored only in memory, in rings of fixed size. In a full ring, the tenant with the most entries loses its oldest, so
//! that no tenant displaces the others. Storing a trace never blocks the end of a request: if all rings that are tried are locked,
//! the trace is dropped and counted.

mod export;
mod record;

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde::Serialize;
use telemetry::spans::SpanSender;

use crate::native::TraceParent;
use record::RecordView;
pub(crate) use record::{End, FinishedHops, HopNumber, Hops, Record, failure};
pub(crate) use telemetry::spans::random_id as random;

/// Maximum stored requests of each kind (failed or slow ones, and others). An entry takes 0.4 KB, or up to 2 KB for a request that
/// failed on three nodes with the longest names. Both kinds use at most 8 MB.
pub const KEPT_MAX: usize = 2_048;
/// Minimum duration of a slow request: more than a round trip around the world.
pub const SLOW: Duration = Duration::from_millis(500);
/// Maximum requests in one response.
pub const TRACES_FOUND_MAX: usize = 256;

/// Number of rings of each kind, which reduces lock contention.
const SHARDS: usize = 16;
/// Maximum rings that are tried before a trace is dropped, because a ring may be locked.
const TRIES: usize = 4;
/// URL path of the list of traces.
const PATH: &str = "/traces";

/// The stored traces. Clones share them.
#[derive(Clone, Default)]
pub struct Traces(Arc<TraceStore>);

#[derive(Default)]
struct TraceStore {
    /// Name of the node and its site, if this is a node.
    own: OnceLock<(String, String)>,
    /// Failed and slow requests.
    notable: Rings,
    others: Rings,
    dropped: Counter,
    /// The exporter of spans, if one is configured.
    export: OnceLock<SpanSender>,
    /// Number of requests considered for export so far.
    numbers: AtomicU64,
}

/// Kind of a stored request; each kind has its own rings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// The request failed or was slow.
    Notable,
    /// All other requests.
    Other,
}

#[derive(Default)]
struct Rings {
    next: AtomicUsize,
    shards: [Mutex<Ring>; SHARDS],
}

/// Requests by tenant, in the order of their end. There are at most as many tenants as requests.
#[derive(Default)]
struct Ring {
    tenants: HashMap<Box<str>, VecDeque<Arc<Record>>>,
    len: usize,
}

impl Ring {
    /// Adds a record. Returns the record that was removed to make room: the oldest one of the tenant with the most records.
    fn put(&mut self, record: Arc<Record>) -> Option<Arc<Record>> {
        let oldest = if self.len < KEPT_MAX / SHARDS { None } else { self.evict_oldest() };
        match self.tenants.get_mut(&record.tenant) {
            Some(own) => own.push_back(record),
            None => drop(self.tenants.insert(record.tenant.clone(), VecDeque::from([record]))),
        }
        self.len += 1;
        oldest
    }

    fn evict_oldest(&mut self) -> Option<Arc<Record>> {
        // If two tenants have equally many records, chooses the tenant with the older record.
        let most =
            |own: &VecDeque<Arc<Record>>| (own.len(), Reverse(own.front().map_or(0, |record| record.at_us)));
        let most = self.tenants.iter().max_by_key(|(_, own)| most(own)).map(|(tenant, _)| tenant.clone())?;
        let own = self.tenants.get_mut(&most)?;
        let oldest = own.pop_front();
        if own.is_empty() {
            self.tenants.remove(&most);
        }
        self.len -= usize::from(oldest.is_some());
        oldest
    }
}

impl Rings {
    /// Stores a record; returns false if the ring is locked.
    fn put(&self, record: Record) -> bool {
        let (first, record) = (self.next.fetch_add(1, Relaxed), Arc::new(record));
        for shard in (0..TRIES).map(|more| &self.shards[(first + more) % SHARDS]) {
            if let Some(mut ring) = shard.try_lock() {
                let oldest = ring.put(record);
                drop(ring);
                // Freed outside of the lock.
                drop(oldest);
                return true;
            }
        }
        false
    }

    fn all(&self) -> impl Iterator<Item = Arc<Record>> {
        let of = |ring: &Ring| ring.tenants.values().flatten().cloned().collect::<Vec<_>>();
        self.shards.iter().flat_map(move |shard| of(&shard.lock()))
    }
}

/// The JSON response that lists traced requests.
#[derive(Serialize)]
struct TracesDocument<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<&'a str>,
    requests: Vec<RecordView<'a>>,
    /// Whether more than [`TRACES_FOUND_MAX`] traces were found, so that some are left out.
    more: bool,
}

impl Traces {
    /// Sets the name of this node and its site.
    pub fn is_node(&self, node: &str, site: &str) {
        // Set once: a node keeps its name.
        let _ = self.0.own.set((node.to_owned(), site.to_owned()));
    }

    /// Returns the JSON response for `path`: `/traces` lists recent failed and slow requests, `/traces/ID` the requests of a trace (32
    /// hexadecimal digits) or request ID. Newest first; `None` for other paths.
    #[must_use]
    pub fn answer(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(PATH)?;
        let mut found: Vec<Arc<Record>> = match rest.strip_prefix('/') {
            None if rest.is_empty() => self.0.notable.all().collect(),
            Some(id) if !id.is_empty() => self.named(&decoded(id)?),
            _ => return None,
        };
        let more = found.len() > TRACES_FOUND_MAX;
        found = newest(found);
        let own = self.0.own.get();
        let requests = found.iter().map(|record| record.view()).collect();
        let (node, site) = (own.map(|own| own.0.as_str()), own.map(|own| own.1.as_str()));
        serde_json::to_string(&TracesDocument { node, site, requests, more }).ok()
    }

    fn named(&self, id: &str) -> Vec<Arc<Record>> {
        let is_trace = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let trace = if is_trace { u128::from_str_radix(id, 16).ok() } else { None };
        let is_it = |record: &Arc<Record>| {
            trace == Some(record.trace) || record.request_id.as_deref().is_some_and(|own| own == id)
        };
        self.0.notable.all().chain(self.0.others.all()).filter(is_it).collect()
    }

    /// Enables the export of spans: for requests whose caller sampled the trace, and for the configured share of other requests.
    pub fn export_to(&self, spans: &SpanSender) {
        // Set once: a service has one collector.
        let _ = self.0.export.set(spans.clone());
    }

    /// Returns whether the spans of a request with this trace context are exported.
    pub(crate) fn wants(&self, caller: Option<&TraceParent>) -> bool {
        let Some(spans) = self.0.export.get() else { return false };
        let number = || self.0.numbers.fetch_add(1, Relaxed);
        match caller {
            Some(caller) => caller.is_sampled(),
            None => spans.samples(number()),
        }
    }

    /// Exports the spans of a finished request.
    pub(crate) fn export(&self, record: &Record) {
        if let Some(spans) = self.0.export.get() {
            spans.put(export::spans(record));
        }
    }

    pub(crate) fn keep(&self, kind: Kind, record: Record) {
        let rings = match kind {
            Kind::Notable => &self.0.notable,
            Kind::Other => &self.0.others,
        };
        if !rings.put(record) {
            self.0.dropped.inc();
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "bulla_keyless_traces_dropped",
            "Requests that `bulla key trace` could not keep because too many others were being kept",
            self.0.dropped.clone(),
        );
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traces")
    }
}

/// Returns the newest [`TRACES_FOUND_MAX`] records, with equal numbers for each tenant that has enough records.
fn newest(mut found: Vec<Arc<Record>>) -> Vec<Arc<Record>> {
    found.sort_by_key(|record| Reverse(record.at_us));
    let mut ranks: HashMap<Box<str>, usize> = HashMap::new();
    let mut ranked: Vec<(usize, Arc<Record>)> = Vec::with_capacity(found.len());
    for record in found {
        let rank = ranks.entry(record.tenant.clone()).or_default();
        ranked.push((*rank, record));
        *rank += 1;
    }
    // The stable sort keeps the newest first within a rank.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.truncate(TRACES_FOUND_MAX);
    ranked.sort_by_key(|(_, record)| Reverse(record.at_us));
    ranked.into_iter().map(|(_, record)| record).collect()
}

/// Decodes percent-encoding in a path segment; `None` if an escape is invalid or the result is not UTF-8.
fn decoded(segment: &str) -> Option<String> {
    String::from_utf8(coded::percent_decoded(segment)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn record(trace: u128, at_us: u64) -> Record {
        Record {
            trace,
            span: 1,
            parent: 0,
            request_id: Some("a/b c".into()),
            at_us,
            tenant: "shop".into(),
            key: None,
            operation_index: 0,
            took: Duration::from_micros(30),
            queued: Some(Duration::from_micros(10)),
            hops: None,
            end: End::Done,
        }
    }

    fn answer_of(traces: &Traces, path: &str) -> Value {
        serde_json::from_str(&traces.answer(path).unwrap()).unwrap()
    }

    #[test]
    fn trace_is_found_by_trace_id_and_request_id() {
        let traces = Traces::default();
        traces.is_node("fra-1", "frankfurt");
        traces.keep(Kind::Other, record(0xab, 1));
        let id = format!("{:032x}", 0xab);
        let found = answer_of(&traces, &format!("/traces/{id}"));
        assert_eq!((&found["node"], &found["site"]), (&"fra-1".into(), &"frankfurt".into()));
        assert_eq!(found["requests"][0]["trace_id"], id);
        assert_eq!(found["requests"][0]["stages"], serde_json::json!({ "queue_us": 10, "sign_us": 20 }));
        assert_eq!(
            answer_of(&traces, &format!("/traces/{}", id.to_uppercase()))["requests"][0]["tenant"],
            "shop"
        );
        assert_eq!(answer_of(&traces, "/traces/a%2Fb%20c")["requests"].as_array().unwrap().len(), 1);
        for none in ["/traces/ab", "/traces/x", "/traces"] {
            assert_eq!(answer_of(&traces, none)["requests"], serde_json::json!([]), "{none}");
        }
        for no_path in ["/", "/trace", "/traces/", "/tracesx", "/traces/%", "/traces/%zz", "/traces/%ff"] {
            assert_eq!(traces.answer(no_path), None, "{no_path}");
        }
        traces.keep(Kind::Notable, record(0xcd, 2));
        assert_eq!(answer_of(&traces, "/traces")["requests"][0]["trace_id"], format!("{:032x}", 0xcd));
    }

    #[test]
    fn trace_rings_keep_only_the_newest_records() {
        let traces = Traces::default();
        for at in 0..3 * KEPT_MAX as u64 {
            traces.keep(Kind::Notable, record(7, at));
        }
        let stored: Vec<u64> = traces.0.notable.all().map(|record| record.at_us).collect();
        assert_eq!(stored.len(), KEPT_MAX);
        assert!(stored.iter().all(|at| *at >= 2 * KEPT_MAX as u64), "an old one is there");
        let response = answer_of(&traces, "/traces");
        assert_eq!(
            (response["requests"].as_array().unwrap().len(), &response["more"]),
            (TRACES_FOUND_MAX, &true.into())
        );
        assert_eq!(response["requests"][0]["at_us"], 3 * KEPT_MAX as u64 - 1, "the newest first");
    }

    #[test]
    fn failing_tenant_does_not_evict_traces_of_other_tenants() {
        let traces = Traces::default();
        let fail = |tenant: &str, at| {
            traces.keep(Kind::Notable, Record { tenant: tenant.into(), ..record(7, at) });
        };
        (0..20).for_each(|at| fail("quiet", at));
        (20..4 * KEPT_MAX as u64).for_each(|at| fail("noisy", at));
        let stored = |tenant: &str| traces.0.notable.all().filter(|record| &*record.tenant == tenant).count();
        assert_eq!((stored("quiet"), stored("noisy")), (20, KEPT_MAX - 20));
        let response = answer_of(&traces, "/traces");
        let response = response["requests"].as_array().unwrap();
        let quiet = response.iter().filter(|request| request["tenant"] == "quiet").count();
        assert_eq!((quiet, response.len()), (20, TRACES_FOUND_MAX), "and all of them are told");
        // Tenants that fail equally often have equally many entries, and the total stays limited.
        let from = 5 * KEPT_MAX as u64;
        let all = ["noisy", "second", "third", "fourth", "fifth"];
        for at in 0..4 * KEPT_MAX as u64 {
            all.into_iter().for_each(|tenant| fail(tenant, from + at));
        }
        assert_eq!((stored("quiet"), traces.0.notable.all().count()), (20, KEPT_MAX));
        for tenant in all {
            assert!(stored(tenant) > KEPT_MAX / 6, "{tenant}: {}", stored(tenant));
        }
    }

    #[test]
    fn concurrent_writers_stay_bounded_and_count_dropped_traces() {
        const THREADS: u64 = 8;
        const EACH: u64 = 60;
        let traces = Traces::default();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let traces = traces.clone();
                scope.spawn(move || {
                    for at in 0..EACH {
                        traces.keep(Kind::Other, record(1, thread * EACH + at));
                        // A reader holds the lock, and no request waits for it.
                        if at % 20 == 0 {
                            let _ = traces.answer("/traces/1");
                        }
                    }
                });
            }
        });
        let stored = traces.0.others.all().count() as u64;
        // Rings are filled in turn. If a ring is locked, one of the next three is used. No ring becomes full in this test.
        assert!(THREADS * EACH * TRIES as u64 <= KEPT_MAX as u64, "all have room");
        assert_eq!(stored + traces.0.dropped.get(), THREADS * EACH);
    }

    #[test]
    fn trace_is_dropped_without_waiting_when_all_rings_are_locked() {
        let traces = Traces::default();
        let guards: Vec<_> = traces.0.others.shards.iter().map(|shard| shard.lock()).collect();
        traces.keep(Kind::Other, record(1, 1));
        assert_eq!(traces.0.dropped.get(), 1);
        drop(guards);
        traces.keep(Kind::Other, record(1, 1));
        assert_eq!((traces.0.others.all().count(), traces.0.dropped.get()), (1, 1));
    }

    #[test]
    fn hops_record_node_reason_and_outcome() {
        let hops = Hops::new();
        let first = hops.start("fra-1", "frankfurt", "first");
        let second = hops.start("par-1", "paris", "hedged");
        hops.finish(second, None);
        hops.finish(first, Some("late"));
        hops.start("ams-1", "amsterdam", "hedged");
        let mut stored = record(1, 1);
        stored.hops = Some(Box::new(FinishedHops::of(&hops)));
        let shown = serde_json::to_value(stored.view()).unwrap();
        let of = |member: &str| -> Vec<&str> {
            shown["asked"].as_array().unwrap().iter().map(|hop| hop[member].as_str().unwrap()).collect()
        };
        assert_eq!(of("node"), ["fra-1", "par-1", "ams-1"]);
        assert_eq!(of("outcome"), ["late", "done", "taken-back"]);
        assert!(shown["stages"]["wire_us"].is_u64() && shown["stages"]["sign_us"].is_null(), "{shown}");
        for _ in 0..100 {
            let more = hops.start("x", "y", "retried");
            hops.finish(more, None);
        }
        assert!(FinishedHops::of(&hops).total_len() <= 8);
    }
}
