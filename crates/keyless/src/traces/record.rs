//! One traced request: its client, its hops, its durations, its outcome.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

use crate::key_name::KeyName;
use crate::operation::OPERATIONS;

/// Maximum characters of a stored failure message.
const FAILURE_MAX: usize = 512;
/// Maximum stored nodes of one request: larger than the number of attempts.
const HOPS_MAX: usize = 8;

/// The nodes that were tried for one request, since it was routed.
#[derive(Debug)]
pub(crate) struct Hops {
    since: Instant,
    all: Mutex<Vec<Hop>>,
}

/// A node that received the request.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    pub(super) node: String,
    pub(super) site: String,
    pub(super) why: &'static str,
    pub(super) after: Duration,
    /// Duration and error of the attempt; `None` while it is in progress.
    pub(super) end: Option<(Duration, Option<&'static str>)>,
}

/// Index in the list of nodes that were tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HopNumber(usize);

impl Hops {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), all: Mutex::default() }
    }

    /// Records an attempt. `why` is `first`, `retried`, `hedged`, or `next` after a node that did no work.
    pub(crate) fn start(&self, node: &str, site: &str, why: &'static str) -> HopNumber {
        let after = self.since.elapsed();
        let (node, site) = (node.to_owned(), site.to_owned());
        let mut all = self.all.lock();
        if all.len() < HOPS_MAX {
            all.push(Hop { node, site, why, after, end: None });
            return HopNumber(all.len() - 1);
        }
        HopNumber(HOPS_MAX)
    }

    /// Records the end of an attempt, with `error` if it failed.
    pub(crate) fn finish(&self, hop: HopNumber, error: Option<&'static str>) {
        let now = self.since.elapsed();
        if let Some(hop) = self.all.lock().get_mut(hop.0) {
            hop.end = Some((now.saturating_sub(hop.after), error));
        }
    }
}

/// Outcome of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// The request was answered.
    Done,
    /// The client cancelled the request.
    Cancelled,
    /// The request failed: name of the error in the protocol, and its message.
    Failed(&'static str, String),
}

/// A finished request.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) trace: u128,
    /// Span ID of the request; for a forwarded request, the span ID that was sent to the other node.
    pub(crate) span: u64,
    /// Span ID of the caller; 0 if none.
    pub(crate) parent: u64,
    pub(crate) request_id: Option<Box<str>>,
    /// Arrival time, in µs since 1970-01-01 UTC.
    pub(crate) at_us: u64,
    pub(crate) tenant: Box<str>,
    pub(crate) key: Option<KeyName>,
    /// Index in [`OPERATIONS`].
    pub(crate) operation_index: usize,
    pub(crate) took: Duration,
    /// Time in the queue; `None` if the request was never started.
    pub(crate) queued: Option<Duration>,
    pub(crate) hops: Option<Box<FinishedHops>>,
    pub(crate) end: End,
}

/// The nodes that received the request.
#[derive(Debug)]
pub(crate) struct FinishedHops {
    /// Time until the first attempt: the wait for a connection. `None` if no node was tried.
    pub(super) connect: Option<Duration>,
    /// Time from the first attempt to the end.
    wire: Option<Duration>,
    all: Vec<Hop>,
}

impl FinishedHops {
    pub(crate) fn of(hops: &Hops) -> Self {
        let all = hops.all.lock().clone();
        let connect = all.first().map(|hop| hop.after);
        let wire = connect.map(|connect| hops.since.elapsed().saturating_sub(connect));
        Self { connect, wire, all }
    }

    /// Returns the attempts in order.
    pub(super) fn all(&self) -> &[Hop] {
        &self.all
    }

    #[cfg(test)]
    pub(super) fn total_len(&self) -> usize {
        self.all.len()
    }
}

/// The JSON of a traced request.
#[derive(Debug, Serialize)]
pub(super) struct RecordView<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    at_us: u64,
    tenant: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    opcode: &'static str,
    /// Outcome of the request: `done`, `gone`, or the name of an error.
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a str>,
    took_us: u64,
    stages: StagesView,
    asked: Vec<HopView<'a>>,
}

/// Durations of the stages in µs; missing stages are absent.
#[derive(Debug, Serialize)]
struct StagesView {
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wire_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sign_us: Option<u64>,
}

#[derive(Debug, Serialize)]
struct HopView<'a> {
    node: &'a str,
    site: &'a str,
    why: &'static str,
    after_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_us: Option<u64>,
    /// Outcome of the attempt: `done`, `taken-back`, or the name of an error.
    outcome: &'static str,
}

impl Record {
    pub(super) fn view(&self) -> RecordView<'_> {
        let hops = self.hops.as_deref();
        let signing = self.queued.filter(|_| hops.is_none()).map(|queued| self.took.saturating_sub(queued));
        let (outcome, failure) = match &self.end {
            End::Done => ("done", None),
            End::Cancelled => ("gone", None),
            End::Failed(name, why) => (*name, Some(why.as_str())),
        };
        RecordView {
            trace_id: format!("{:032x}", self.trace),
            span_id: format!("{:016x}", self.span),
            parent_id: (self.parent != 0).then(|| format!("{:016x}", self.parent)),
            request_id: self.request_id.as_deref(),
            at_us: self.at_us,
            tenant: &self.tenant,
            key: self.key.map(|key| key.to_string()),
            opcode: OPERATIONS.get(self.operation_index).map_or("unknown", |(_, name, _)| name),
            outcome,
            failure,
            took_us: micros(self.took),
            stages: StagesView {
                queue_us: self.queued.map(micros),
                connect_us: hops.and_then(|hops| hops.connect).map(micros),
                wire_us: hops.and_then(|hops| hops.wire).map(micros),
                sign_us: signing.map(micros),
            },
            asked: hops.into_iter().flat_map(|hops| &hops.all).map(Hop::view).collect(),
        }
    }
}

impl Hop {
    fn view(&self) -> HopView<'_> {
        HopView {
            node: &self.node,
            site: &self.site,
            why: self.why,
            after_us: micros(self.after),
            took_us: self.end.map(|(took, _)| micros(took)),
            outcome: self.outcome(),
        }
    }

    pub(super) fn outcome(&self) -> &'static str {
        match self.end {
            None => "taken-back",
            Some((_, None)) => "done",
            Some((_, Some(error))) => error,
        }
    }
}

/// Returns the failure message, truncated for storage.
pub(crate) fn failure(failure: &impl std::fmt::Display) -> String {
    let mut text = failure.to_string();
    if let Some((at, _)) = text.char_indices().nth(FAILURE_MAX) {
        text.truncate(at);
    }
    text
}

fn micros(of: Duration) -> u64 {
    u64::try_from(of.as_micros()).unwrap_or(u64::MAX)
}
