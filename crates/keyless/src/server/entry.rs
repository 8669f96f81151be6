//! A request in progress, over any protocol: its counters, trace and failure.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use keys::{Misfit, SignError, TicketError};
use tonic::Code;
use tracing::Span;
use x509::SpkiHash;

use super::memory::ReservedBytes;
use crate::Key;
use crate::key_name::KeyName;
use crate::metrics::Metrics;
use crate::native::TraceParent;
use crate::operation::OPERATIONS;
use crate::records::{Draft, Slot};
use crate::refusal::Refusal;
use crate::routing::{RelayError, RouteError};
use crate::tenant::Tenant;
use crate::traces::{self, End, FinishedHops, Hops, Kind, Record, SLOW, random};
use crate::wire::ErrorCode;

/// Reason why a request to the key service failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Failure {
    /// The request names no key, or the name has an invalid length.
    #[error(
        "no key is specified: give its SKI (20 bytes) or the SHA-256 of its SubjectPublicKeyInfo (32 bytes)"
    )]
    NoKey,
    /// The key does not exist, or the tenant may not use it: clients cannot tell which.
    #[error("unknown key, or the client is not allowed to use it")]
    UnknownKey,
    /// The request names no scheme, or an unknown one.
    #[error("unknown signature scheme")]
    NoScheme,
    /// The key does not support the scheme or the length of the input. The key was not used.
    #[error("{0}")]
    Misfit(#[from] Misfit),
    /// The input is too long.
    #[error("the input has {given} bytes; at most {most} are allowed")]
    TooLong {
        /// Length of the input.
        given: usize,
        /// Maximum length.
        most: usize,
    },
    /// A limit is reached.
    #[error("overloaded: {}", .0.reason())]
    Overloaded(Refusal),
    /// The deadline passed. Work that had not begun was skipped.
    #[error("deadline exceeded in the key service")]
    Late,
    /// Another node did not reply in time. Contains the node's name and the reason.
    #[error("deadline exceeded: {0}")]
    RemoteLate(String),
    /// The key cannot be reached.
    #[error("the key cannot be reached: {0}")]
    Unavailable(String),
    /// The request could not be forwarded to its destination node.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// The caller cancelled the request.
    #[error("the caller cancelled the request")]
    Cancelled,
    /// The key could not be used; contains the error message.
    #[error("signing with the key failed: {0}")]
    Broken(String),
    /// The key is not sealed to the requested policy. Contains the policy of the key.
    #[error("the key is not sealed to the requested policy: it is sealed to {}", format_policy(.0.as_deref()))]
    Policy(Option<Arc<str>>),
    /// The node that has the key rejected the request by its policy.
    #[error("{0}")]
    RemotePolicy(String),
    /// RSA decryption is disabled.
    #[error("decryption is not supported")]
    NoDecryption,
    /// Sealing is disabled.
    #[error("sealing is disabled: keys.ticket_key_s is 0")]
    NoSealing,
    /// The sealed ticket cannot be opened.
    #[error("{0}")]
    Ticket(#[from] TicketError),
    /// The service stops.
    #[error("the key service is stopping")]
    Stopping,
}

fn format_policy(policy: Option<&str>) -> String {
    policy.map_or_else(|| "none".to_owned(), |policy| format!("{policy:?}"))
}

impl Failure {
    /// Returns the error code of the Keyless protocol.
    pub(super) const fn keyless(&self) -> ErrorCode {
        match self {
            Self::UnknownKey => ErrorCode::KeyNotFound,
            Self::Misfit(_) | Self::Broken(_) | Self::NoDecryption | Self::Ticket(TicketError::Forged) => {
                ErrorCode::Cryptography
            }
            Self::Ticket(TicketError::Retired) => ErrorCode::Expired,
            Self::TooLong { .. } => ErrorCode::Format,
            Self::NoScheme => ErrorCode::BadOpcode,
            Self::NoKey
            | Self::Overloaded(_)
            | Self::Late
            | Self::RemoteLate(_)
            | Self::Cancelled
            | Self::Relay(_)
            | Self::Unavailable(_)
            // The Keyless protocol has no messages with policies.
            | Self::Policy(_)
            | Self::RemotePolicy(_)
            | Self::NoSealing
            | Self::Ticket(TicketError::Library)
            | Self::Stopping => ErrorCode::Internal,
        }
    }

    /// Returns the gRPC status code.
    pub(super) const fn grpc(&self) -> Code {
        match self {
            Self::UnknownKey => Code::NotFound,
            Self::NoKey
            | Self::NoScheme
            | Self::Misfit(_)
            | Self::TooLong { .. }
            | Self::NoDecryption
            | Self::Ticket(TicketError::Forged) => Code::InvalidArgument,
            Self::Overloaded(_) => Code::ResourceExhausted,
            Self::Late | Self::RemoteLate(_) => Code::DeadlineExceeded,
            Self::Cancelled => Code::Cancelled,
            Self::Relay(RelayError::Answered(code, _)) => *code,
            Self::Relay(RelayError::Full) => Code::ResourceExhausted,
            Self::Relay(RelayError::Late) => Code::DeadlineExceeded,
            Self::Relay(RelayError::NoConnection | RelayError::Lost) => Code::Unavailable,
            Self::Unavailable(_) | Self::Stopping => Code::Unavailable,
            Self::Policy(_)
            | Self::RemotePolicy(_)
            | Self::NoSealing
            | Self::Ticket(TicketError::Retired) => Code::FailedPrecondition,
            Self::Broken(_) | Self::Ticket(TicketError::Library) => Code::Internal,
        }
    }
}

impl From<SignError> for Failure {
    fn from(error: SignError) -> Self {
        match error {
            SignError::Late => Self::Late,
            SignError::Unavailable(why) => Self::Unavailable(why),
            SignError::Failed(why) => Self::Broken(why),
        }
    }
}

impl From<RouteError> for Failure {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::TooFar { .. } => Self::RemoteLate(error.to_string()),
            RouteError::Late(who) => Self::RemoteLate(who),
            RouteError::Overloaded(_) => Self::Overloaded(Refusal::Destination),
            RouteError::NoNode | RouteError::Unavailable(_) => Self::Unavailable(error.to_string()),
            // Only policies cause this code in requests to nodes.
            RouteError::Refused { ref status, .. } if status.code() == Code::FailedPrecondition => {
                Self::RemotePolicy(error.to_string())
            }
            RouteError::Refused { .. } => Self::Broken(error.to_string()),
        }
    }
}

/// Metadata of a request, apart from its operation.
#[derive(Default)]
pub(super) struct Origin {
    /// Tracing span for the log.
    pub(super) span: Option<Span>,
    /// The trace context of the caller.
    pub(super) trace: Option<TraceParent>,
    /// Name of the key, if given.
    pub(super) key: Option<KeyName>,
    /// Request ID that the client sent.
    pub(super) request_id: Option<Box<str>>,
    /// Whether the request is forwarded for another node, which enforces the tenant's limits.
    pub(super) is_relayed: bool,
    /// Public key of the client's certificate, if it has one.
    pub(super) client: Option<SpkiHash>,
}

/// The span of a request that was routed to other nodes, and the nodes that received the request.
struct ForwardedSpan {
    as_span: TraceParent,
    hops: Arc<Hops>,
}

/// A request, from its arrival until it is answered or cancelled.
pub(super) struct Entry {
    metrics: Metrics,
    tenant: Arc<Tenant>,
    operation_index: usize,
    began: Instant,
    /// Number of the tenant's requests in progress at arrival, including this one.
    in_flight: i64,
    queued: Option<Duration>,
    /// Whether the request is queued.
    is_queued: bool,
    span: Span,
    /// Span of the current stage: queue, then sign.
    stage: Span,
    /// Memory reserved for the input.
    reserved: Option<ReservedBytes>,
    trace: Option<TraceParent>,
    key: Option<KeyName>,
    request_id: Option<Box<str>>,
    forwarded_span: Option<ForwardedSpan>,
    is_relayed: bool,
    client: Option<SpkiHash>,
    /// Draft of the signature record, once a slot is reserved.
    draft: Option<Draft>,
    /// Whether the spans of the request are exported.
    is_exported: bool,
    open: bool,
}

impl Entry {
    /// Creates the entry. `operation_index` is the index of the operation in [`crate::operation::OPERATIONS`].
    pub(super) fn new(metrics: Metrics, tenant: Arc<Tenant>, operation_index: usize, origin: Origin) -> Self {
        let began = Instant::now();
        metrics.began(operation_index);
        let Origin { span, trace, key, request_id, is_relayed, client } = origin;
        let in_flight = if is_relayed { 0 } else { tenant.began(began) };
        let is_exported = metrics.traces().wants(trace.as_ref());
        Self {
            metrics,
            tenant,
            operation_index,
            began,
            in_flight,
            queued: None,
            is_queued: false,
            span: span.unwrap_or_else(Span::none),
            stage: Span::none(),
            reserved: None,
            trace,
            key,
            request_id,
            forwarded_span: None,
            is_relayed,
            client,
            draft: None,
            is_exported,
            open: true,
        }
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Returns whether the request is forwarded for another node.
    pub(super) fn is_relayed(&self) -> bool {
        self.is_relayed
    }

    pub(super) fn tenant(&self) -> &Arc<Tenant> {
        &self.tenant
    }

    /// Checks the tenant's limits.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(super) fn admit(&self) -> Result<(), Refusal> {
        self.tenant.admit(self.in_flight)
    }

    /// Marks the request as queued, with the memory reserved for a long message.
    pub(super) fn queue(&mut self, reserved: Option<ReservedBytes>) {
        self.reserved = reserved;
        self.is_queued = true;
        self.metrics.queued(self.operation_index);
        self.stage = self.child("queue");
    }

    /// Marks the request as started. Returns its time in the queue.
    pub(super) fn started(&mut self) -> Duration {
        self.leave_queue();
        let queued = self.began.elapsed();
        self.queued = Some(queued);
        self.tenant.counters().queued.observe(queued.as_secs_f64());
        self.stage = self.child("sign");
        queued
    }

    fn leave_queue(&mut self) {
        if std::mem::take(&mut self.is_queued) {
            self.metrics.dequeued(self.operation_index);
        }
    }

    /// Marks the request as routed to another node. Returns the trace context for that node (a new trace if the caller sent none),
    /// and the list in which attempts are recorded.
    pub(super) fn forwarded(&mut self) -> (TraceParent, Arc<Hops>) {
        let span = random();
        let passed = match &self.trace {
            Some(trace) => trace.child(span),
            None if self.is_exported => TraceParent::root(random_trace(), span).sampled(),
            None => TraceParent::root(random_trace(), span),
        };
        if !self.span.is_disabled() {
            let (trace_id, span_id) = (passed.trace_id(), passed.parent_id());
            self.stage = tracing::debug_span!(parent: &self.span, "stage", stage = "wire", trace_id, span_id);
        }
        let hops = Arc::new(Hops::new());
        self.forwarded_span = Some(ForwardedSpan { as_span: passed, hops: Arc::clone(&hops) });
        (passed, hops)
    }

    fn child(&self, stage: &'static str) -> Span {
        if self.span.is_disabled() {
            return Span::none();
        }
        tracing::debug_span!(parent: &self.span, "stage", stage)
    }

    /// Records a failure; refusals are also counted separately.
    pub(super) fn failed(&mut self, failure: &Failure, name: &'static str) {
        if let Failure::Overloaded(refusal) = failure {
            self.metrics.refused(*refusal);
            self.metrics.opcode_refused(self.operation_index);
            self.tenant.counters().refused(*refusal);
        }
        self.metrics.error(Some(self.operation_index), name);
        self.span.in_scope(|| tracing::debug!(%failure, error = name, "a request failed"));
        self.ended(Some((name, failure)), false);
    }

    /// Prepares the signature record, which is written when the request is answered.
    pub(super) fn record(&mut self, slot: Slot, key: Arc<Key>, input: &[u8]) {
        self.draft = Some(Draft::new(slot, key, OPERATIONS[self.operation_index].1, input));
    }

    /// Marks the request as done, and completes its record. The reply is sent next.
    pub(super) fn done(&mut self) {
        if let Some(draft) = self.draft.take() {
            draft.complete(Arc::clone(&self.tenant), self.client);
        }
        self.ended(None, false);
    }

    /// Records that the client cancelled the request.
    pub(super) fn cancelled(&mut self) {
        self.ended(None, true);
    }

    fn ended(&mut self, failed: Option<(&'static str, &Failure)>, cancelled: bool) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        self.leave_queue();
        (self.stage, self.reserved, self.draft) = (Span::none(), None, None);
        let now = Instant::now();
        let took = now.saturating_duration_since(self.began);
        self.metrics.ended(self.operation_index, took);
        if !self.is_relayed {
            self.tenant.ended(now, took);
        }
        let queued_us = self.queued.unwrap_or_default().as_micros() as u64;
        self.span
            .in_scope(|| tracing::debug!(took_us = took.as_micros() as u64, queued_us, "a request finished"));
        self.keep(took, failed, cancelled);
    }

    /// Stores the trace of the request for inspection, if the request failed, was slow, or has a trace or request ID. Exports its
    /// spans if enabled. Immediate rejections are not stored, because they are frequent and would displace other failures.
    fn keep(&mut self, took: Duration, failed: Option<(&'static str, &Failure)>, cancelled: bool) {
        let is_refusal = matches!(failed, Some((_, Failure::Overloaded(_))));
        let is_notable = took >= SLOW || (failed.is_some() && !is_refusal);
        let has_name = self.trace.is_some() || self.forwarded_span.is_some() || self.request_id.is_some();
        let is_stored = is_notable || has_name;
        if !is_stored && !self.is_exported {
            return;
        }
        let known = self.forwarded_span.as_ref().map(|passed| passed.as_span);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let end = match failed {
            Some((name, failure)) => End::Failed(name, traces::failure(failure)),
            None if cancelled => End::Cancelled,
            None => End::Done,
        };
        let record = Record {
            trace: known.or(self.trace).map_or_else(random_trace, |trace| trace.trace()),
            span: known.map_or_else(random, |passed| passed.parent()),
            parent: self.trace.map_or(0, |trace| trace.parent()),
            request_id: self.request_id.take(),
            at_us: u64::try_from(now.saturating_sub(took).as_micros()).unwrap_or(u64::MAX),
            tenant: self.tenant.name().into(),
            key: self.key,
            operation_index: self.operation_index,
            took,
            queued: self.queued,
            hops: self.forwarded_span.as_ref().map(|passed| Box::new(FinishedHops::of(&passed.hops))),
            end,
        };
        let traces = self.metrics.traces();
        if self.is_exported {
            traces.export(&record);
        }
        if is_stored {
            traces.keep(if is_notable { Kind::Notable } else { Kind::Other }, record);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.cancelled();
    }
}

fn random_trace() -> u128 {
    u128::from(random()) << 64 | u128::from(random())
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::tenant::{DEFAULT, Tenants};

    #[test]
    fn request_is_counted_as_queued_until_started_or_dropped() {
        let metrics = Metrics::default();
        let tenants = Tenants::new(metrics.clone(), 1);
        let operation_index = OPERATIONS.iter().position(|(_, name, _)| *name == "ed25519").unwrap();
        let entry =
            || Entry::new(metrics.clone(), tenants.named(DEFAULT), operation_index, Origin::default());
        let figures = || {
            let (mut registry, mut text) = (Registry::default(), String::new());
            metrics.register(&mut registry);
            encode(&mut text, &registry).unwrap();
            let of = |name: &str| {
                let name = format!("bulla_keyless_requests_{name}{{opcode=\"ed25519\"}} ");
                text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(-1)
            };
            (of("in_flight"), of("queued"))
        };
        let (mut signed, mut late, mut cancelled, refused) = (entry(), entry(), entry(), entry());
        assert_eq!(figures(), (4, 0));
        [&mut signed, &mut late, &mut cancelled].into_iter().for_each(|entry| entry.queue(None));
        assert_eq!(figures(), (4, 3));
        signed.started();
        assert_eq!(figures(), (4, 2), "it is being signed");
        late.started();
        late.failed(&Failure::Late, "internal");
        drop(cancelled);
        assert_eq!(figures(), (2, 0));
        signed.done();
        drop(refused);
        assert_eq!(figures(), (0, 0), "each is counted off once");
    }
}
