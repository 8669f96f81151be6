//! Spans for trace collectors, in OpenTelemetry's format, sent by OTLP over HTTP.
//!
//! Code that creates spans never waits: spans that do not fit into the queue are dropped and counted. One task sends the spans in
//! batches ([`export`]); the caller provides the transport to the collector.

mod context;
mod process;
mod wire;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::Instant;

pub use context::{TRACEPARENT, TraceParent};
pub use process::{current, emit, install, is_installed, now_us, part, random_id, samples_new_trace, within};

/// Maximum number of requests whose spans are queued, 1 to 3 KB each: 12 MB in total.
pub const QUEUE_MAX: usize = 4_096;
/// Maximum number of requests whose spans one message contains. A full message has about 500 KB.
const BATCH_MAX: usize = 256;
/// Time for which the first entry of a batch waits for further entries.
const LINGER: Duration = Duration::from_secs(1);
/// Delays before a batch is sent again after a retryable error (OTLP 1.x, "Retryable Response Codes").
const RETRY_DELAYS: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// Timeout at shutdown for sending the queued spans.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum interval of log messages about an unavailable collector. Metrics count each failure.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Flags of a span (OTLP, `SpanFlags`). The low 8 bits are the W3C flags: sampled.
const SAMPLED: u32 = 1;

/// Kind of a span (OpenTelemetry, `SpanKind`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A request from another process.
    Server,
    /// A request to another process.
    Client,
    /// A part of a request, within the process.
    Internal,
}

/// A span that has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Span {
    /// Trace ID, which all spans of the trace have in common.
    pub trace: u128,
    /// Span ID, unique within the trace.
    pub id: u64,
    /// Id of the parent span; 0: none.
    pub parent: u64,
    /// Name of the span, one of a small fixed set.
    pub name: &'static str,
    /// Kind of the span: server, client, or within the process.
    pub kind: Kind,
    /// Start, in nanoseconds since 1970.
    pub began_ns: u64,
    /// End, in nanoseconds since 1970.
    pub ended_ns: u64,
    /// Attributes of the span.
    pub attributes: Vec<(&'static str, String)>,
    /// Spans of other traces that this span follows from (OpenTelemetry, "Links between spans").
    pub links: Vec<TraceParent>,
    /// The error, if the operation failed.
    pub error: Option<String>,
}

impl Span {
    /// Creates the span `at`, below the span `parent` of the same trace (0: none), from `began_us` to `ended_us`, in µs since 1970.
    #[must_use]
    pub fn new(at: TraceParent, parent: u64, name: &'static str, began_us: i64, ended_us: i64) -> Self {
        let ns = |us: i64| u64::try_from(us).unwrap_or_default().saturating_mul(1_000);
        Self {
            trace: at.trace(),
            id: at.parent(),
            parent,
            name,
            kind: Kind::Internal,
            began_ns: ns(began_us),
            ended_ns: ns(ended_us.max(began_us)),
            attributes: Vec::new(),
            links: Vec::new(),
            error: None,
        }
    }

    /// Returns the span with an additional attribute.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.attributes.push((key, value.into()));
        self
    }

    /// Adds a link to a span of another trace.
    #[must_use]
    pub fn linked(mut self, to: TraceParent) -> Self {
        self.links.push(to);
        self
    }
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// The sending side of the queue of spans. Cheap to clone; clones share the queue.
#[derive(Clone)]
pub struct SpanSender(Arc<QueueState>);

struct QueueState {
    queue: mpsc::Sender<Vec<Span>>,
    /// The share of traces to sample, as a fraction of 2^64.
    share: u64,
    random: RandomState,
    counters: SpanCounters,
}

/// Counters of spans by outcome.
#[derive(Clone)]
struct SpanCounters {
    all: Family<OutcomeLabel, Counter>,
    dropped: Counter,
}

impl SpanCounters {
    fn new() -> Self {
        let all = Family::<OutcomeLabel, Counter>::default();
        let of = |outcome| all.get_or_create(&OutcomeLabel { outcome }).clone();
        let dropped = of("dropped");
        drop((of("sent"), of("failed")));
        Self { all, dropped }
    }

    fn add(&self, outcome: &'static str, count: usize) {
        self.all.get_or_create(&OutcomeLabel { outcome }).inc_by(count as u64);
    }
}

/// The receiving side of the queue, for [`export`].
pub struct SpanQueue {
    queue: mpsc::Receiver<Vec<Span>>,
    counters: SpanCounters,
}

impl fmt::Debug for SpanSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spans")
    }
}

impl fmt::Debug for SpanQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SpanQueue")
    }
}

/// Creates a queue. `share` (0 to 1) of the traces that begin here are sampled.
#[must_use]
pub fn queue(share: f64) -> (SpanSender, SpanQueue) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let counters = SpanCounters::new();
    // The conversion saturates, so 1.0 samples all traces.
    let share = (share.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
    let inner = QueueState { queue: sender, share, random: RandomState::new(), counters: counters.clone() };
    (SpanSender(Arc::new(inner)), SpanQueue { queue: receiver, counters })
}

impl SpanSender {
    /// Returns whether to sample a trace that begins here. `number` must be unique to the trace.
    #[must_use]
    pub fn samples(&self, number: u64) -> bool {
        match self.0.share {
            0 => false,
            u64::MAX => true,
            share => self.0.random.hash_one(number) < share,
        }
    }

    /// Queues the spans of one request. If the queue is full, drops all of them.
    pub fn put(&self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        if self.0.queue.try_send(spans).is_err() {
            self.0.counters.dropped.inc_by(count);
        }
    }

    /// Adds the metrics of the queue to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "bulla_telemetry_spans",
            "Spans by outcome: sent, failed (the collector did not accept them), dropped (the queue was full)",
            self.0.counters.all.clone(),
        );
    }
}

/// The reason why a collector did not accept a batch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum BatchRejection {
    /// Retryable: no response, 429, 502, 503, 504.
    Later(String),
    /// A permanent failure: the batch must not be sent again.
    Never(String),
}

/// Sends the queued spans until `stop` completes; then sends the remaining spans, for at most two seconds. `resource` describes the
/// sender. `send` delivers one message to the collector, and must have its own timeout.
pub async fn export<F>(
    mut waiting: SpanQueue,
    resource: Vec<(&'static str, String)>,
    send: impl Fn(Vec<u8>) -> F,
    stop: impl Future<Output = ()>,
) where
    F: Future<Output = Result<(), BatchRejection>>,
{
    let _live = crate::tasks::guard("spans");
    let logged_at = Mutex::new(None);
    let mut stop = std::pin::pin!(stop);
    let mut batch = Vec::with_capacity(BATCH_MAX);
    loop {
        let sending = async {
            if batch.is_empty() {
                fill(&mut waiting.queue, &mut batch).await;
            }
            deliver(&resource, &batch, &send, &waiting.counters, &logged_at).await;
        };
        tokio::select! {
            () = stop.as_mut() => break,
            () = sending => batch.clear(),
        }
    }
    waiting.queue.close();
    let rest = async {
        loop {
            while batch.len() < BATCH_MAX
                && let Ok(spans) = waiting.queue.try_recv()
            {
                batch.push(spans);
            }
            if batch.is_empty() {
                return;
            }
            deliver(&resource, &batch, &send, &waiting.counters, &logged_at).await;
            batch.clear();
        }
    };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, rest).await.is_err() {
        tracing::warn!("some spans could not be sent before shutdown");
    }
}

/// Collects a batch until it is full, but only for a bounded time.
async fn fill(queue: &mut mpsc::Receiver<Vec<Span>>, batch: &mut Vec<Vec<Span>>) {
    if queue.recv_many(batch, BATCH_MAX).await == 0 {
        // All senders were dropped.
        return std::future::pending().await;
    }
    let until = Instant::now() + LINGER;
    while batch.len() < BATCH_MAX {
        let room = BATCH_MAX - batch.len();
        match tokio::time::timeout_at(until, queue.recv_many(batch, room)).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Sends a batch. Retries after a retryable error.
async fn deliver<F>(
    resource: &[(&'static str, String)],
    batch: &[Vec<Span>],
    send: &impl Fn(Vec<u8>) -> F,
    counters: &SpanCounters,
    logged_at: &Mutex<Option<Instant>>,
) where
    F: Future<Output = Result<(), BatchRejection>>,
{
    let (message, count) = (message(resource, batch), batch.iter().map(Vec::len).sum());
    let mut pauses = RETRY_DELAYS.into_iter();
    let why = loop {
        match send(message.clone()).await {
            Ok(()) => return counters.add("sent", count),
            Err(BatchRejection::Never(why)) => break why,
            Err(BatchRejection::Later(why)) => match pauses.next() {
                Some(pause) => tokio::time::sleep(pause).await,
                None => break why,
            },
        }
    };
    counters.add("failed", count);
    let mut logged_at = logged_at.lock();
    if logged_at.is_none_or(|logged_at: Instant| logged_at.elapsed() >= LOG_INTERVAL) {
        *logged_at = Some(Instant::now());
        tracing::warn!(why, "the collector of traces does not accept spans");
    }
}

fn message(resource: &[(&'static str, String)], batch: &[Vec<Span>]) -> Vec<u8> {
    let attributes = resource.iter().map(|(key, value)| attribute(key, value)).collect();
    let scope = wire::InstrumentationScope {
        name: "bulla".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let spans = batch.iter().flatten().map(wire_span).collect();
    let resource_spans = vec![wire::ResourceSpans {
        resource: Some(wire::Resource { attributes }),
        scope_spans: vec![wire::ScopeSpans { scope: Some(scope), spans }],
    }];
    wire::ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

fn wire_span(span: &Span) -> wire::Span {
    let kind = match span.kind {
        Kind::Server => wire::SpanKind::Server,
        Kind::Client => wire::SpanKind::Client,
        Kind::Internal => wire::SpanKind::Internal,
    };
    let status = span
        .error
        .as_ref()
        .map(|error| wire::Status { message: error.clone(), code: wire::StatusCode::Error.into() });
    wire::Span {
        trace_id: span.trace.to_be_bytes().to_vec(),
        span_id: span.id.to_be_bytes().to_vec(),
        parent_span_id: if span.parent == 0 { Vec::new() } else { span.parent.to_be_bytes().to_vec() },
        name: span.name.to_owned(),
        kind: kind.into(),
        start_time_unix_nano: span.began_ns,
        end_time_unix_nano: span.ended_ns,
        attributes: span.attributes.iter().map(|(key, value)| attribute(key, value)).collect(),
        links: span.links.iter().map(link).collect(),
        status,
        flags: SAMPLED,
    }
}

fn link(to: &TraceParent) -> wire::Link {
    wire::Link {
        trace_id: to.trace().to_be_bytes().to_vec(),
        span_id: to.parent().to_be_bytes().to_vec(),
        flags: if to.is_sampled() { SAMPLED } else { 0 },
    }
}

fn attribute(key: &str, value: &str) -> wire::KeyValue {
    let value = wire::AnyValue { value: Some(wire::Value::StringValue(value.to_owned())) };
    wire::KeyValue { key: key.to_owned(), value: Some(value) }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::trace::v1::{span::SpanKind, status::StatusCode};

    use super::*;

    fn span(id: u64) -> Span {
        Span {
            trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            id,
            parent: 0x00f0_67aa_0ba9_02b7,
            name: "wire",
            kind: Kind::Client,
            began_ns: 1_700_000_000_000_000_001,
            ended_ns: 1_700_000_000_000_000_009,
            attributes: vec![("bulla.tenant", "shop".to_owned())],
            links: vec![TraceParent::of_object(7)],
            error: Some("late".to_owned()),
        }
    }

    fn figure(spans: &SpanSender, outcome: &'static str) -> u64 {
        spans.0.counters.all.get_or_create(&OutcomeLabel { outcome }).get()
    }

    /// The message can be parsed with OpenTelemetry's own types.
    #[test]
    fn message_is_decoded_by_the_opentelemetry_protocol_types() {
        let root = Span { parent: 0, kind: Kind::Server, error: None, ..span(2) };
        let bytes = message(&[("service.name", "bulla-keys".to_owned())], &[vec![span(1)], vec![root]]);
        let read = ExportTraceServiceRequest::decode(bytes.as_slice()).unwrap();
        let [of_resource] = read.resource_spans.as_slice() else { panic!("{read:?}") };
        let text = |value: &Option<opentelemetry_proto::tonic::common::v1::AnyValue>| match value {
            Some(value) => match &value.value {
                Some(Value::StringValue(text)) => text.clone(),
                other => panic!("{other:?}"),
            },
            None => panic!("no value"),
        };
        let resource = &of_resource.resource.as_ref().unwrap().attributes;
        assert_eq!(
            (resource[0].key.as_str(), text(&resource[0].value)),
            ("service.name", "bulla-keys".into())
        );
        let [of_scope] = of_resource.scope_spans.as_slice() else { panic!("{of_resource:?}") };
        let scope = of_scope.scope.as_ref().unwrap();
        assert_eq!((scope.name.as_str(), scope.version.as_str()), ("bulla", env!("CARGO_PKG_VERSION")));
        let [wire, root] = of_scope.spans.as_slice() else { panic!("{of_scope:?}") };
        assert_eq!(wire.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
        assert_eq!(wire.span_id, 1_u64.to_be_bytes());
        assert_eq!(wire.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
        assert_eq!((wire.name.as_str(), wire.kind(), wire.flags), ("wire", SpanKind::Client, 1));
        assert_eq!(
            (wire.start_time_unix_nano, wire.end_time_unix_nano),
            (1_700_000_000_000_000_001, 1_700_000_000_000_000_009)
        );
        assert_eq!(
            (wire.attributes[0].key.as_str(), text(&wire.attributes[0].value)),
            ("bulla.tenant", "shop".into())
        );
        let [link] = wire.links.as_slice() else { panic!("{wire:?}") };
        let linked = TraceParent::of_object(7).parent().to_be_bytes();
        assert_eq!(link.trace_id, 7_u128.to_be_bytes());
        assert_eq!((link.span_id.as_slice(), link.flags), (&linked[..], 1));
        let status = wire.status.as_ref().unwrap();
        assert_eq!((status.code(), status.message.as_str()), (StatusCode::Error, "late"));
        assert_eq!((root.kind(), root.parent_span_id.len(), &root.status), (SpanKind::Server, 0, &None));
    }

    #[test]
    fn new_traces_are_sampled_at_the_configured_rate() {
        let wanted = |share| {
            let (spans, _waiting) = queue(share);
            (0..10_000).filter(|number| spans.samples(*number)).count()
        };
        assert_eq!((wanted(0.0), wanted(1.0)), (0, 10_000));
        // A tolerance of six standard deviations.
        assert!((820..1_180).contains(&wanted(0.1)), "{}", wanted(0.1));
    }

    #[test]
    fn spans_above_the_queue_limit_are_dropped_and_counted() {
        let (spans, waiting) = queue(1.0);
        for number in 0..QUEUE_MAX as u64 + 10 {
            spans.put(vec![span(number), span(number)]);
        }
        assert_eq!((waiting.queue.len(), figure(&spans, "dropped")), (QUEUE_MAX, 20));
        drop(waiting);
        spans.put(vec![span(1)]);
        assert_eq!(figure(&spans, "dropped"), 21, "nobody sends any more");
    }

    #[tokio::test(start_paused = true)]
    async fn spans_are_sent_in_batches_retried_and_flushed_on_shutdown() {
        let (spans, waiting) = queue(1.0);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (sent, answers) = (RefCell::new(Vec::new()), Cell::new(0));
        let send = |message: Vec<u8>| {
            let read = ExportTraceServiceRequest::decode(message.as_slice()).unwrap();
            let count = read.resource_spans[0].scope_spans[0].spans.len();
            answers.set(answers.get() + 1);
            let answer = match (answers.get(), count) {
                // The first batch is accepted at its third attempt.
                (1 | 2, _) => Err(BatchRejection::Later("busy".to_owned())),
                (_, 7) => Err(BatchRejection::Later("away".to_owned())),
                (_, 9) => Err(BatchRejection::Never("nonsense".to_owned())),
                _ => Ok(()),
            };
            if answer.is_ok() {
                sent.borrow_mut().push(count);
            }
            std::future::ready(answer)
        };
        let exporting = export(waiting, Vec::new(), send, async { drop(stopped.await) });
        let checking = async {
            let put = |count: usize| (0..count).for_each(|at| spans.put(vec![span(at as u64)]));
            let minute = || tokio::time::sleep(Duration::from_secs(60));
            put(BATCH_MAX + 3);
            minute().await;
            assert_eq!((sent.borrow().as_slice(), answers.get()), (&[BATCH_MAX, 3][..], 4));
            put(7);
            minute().await;
            assert_eq!((figure(&spans, "failed"), answers.get()), (7, 8), "once, and three times again");
            put(9);
            minute().await;
            assert_eq!((figure(&spans, "failed"), answers.get()), (16, 9), "never again");
            put(5);
            drop(stop);
        };
        tokio::join!(exporting, checking);
        assert_eq!(sent.borrow().as_slice(), [BATCH_MAX, 3, 5]);
        assert_eq!((figure(&spans, "sent"), figure(&spans, "dropped")), (BATCH_MAX as u64 + 8, 0));
    }
}
