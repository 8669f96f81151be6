//! The gRPC service of the native protocol.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_util::Stream;
use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};
use tracing::{Level, Span};
use x509::SpkiHash;

use super::caller::Caller;
use super::dispatch::Terms;
use super::entry::{Entry, Failure, Origin};
use super::replies::{Inbox, Outcome, Unread};
use super::state::ServerState;
use crate::Key;
use crate::key_name::KeyName;
use crate::limits::STREAM_MAX;
use crate::native::proto::key_service_server::KeyService;
use crate::native::proto::{self, SignReply, SignRequest, sign_reply, sign_request};
use crate::native::{TRACEPARENT, TraceParent, code_name, grpc_timeout, scheme_of};
use crate::operation::{self, OPERATIONS};
use crate::refusal::Refusal;
use crate::routing::{NodeId, RelayError};
use crate::tenant::Client;
use crate::wire::Ski;

/// Maximum bytes of a message, enough for a full batch of 4 KB messages or for sixteen messages of maximum length.
pub(super) const MESSAGE_MAX: usize = 1 << 20;
/// Maximum items of a batch.
pub const BATCH_MAX: usize = 256;
/// Maximum bytes of an input to sign or unseal: the limit of the Keyless protocol.
pub const INPUT_MAX: usize = 65_532;
/// Maximum bytes of an input to seal, so that the result can be unsealed.
const SEALED_MAX: usize = INPUT_MAX - keys::TICKET_OVERHEAD;
/// Default number of keys in a page.
const PAGE: usize = 100;
/// Maximum number of keys in a page.
const PAGE_MAX: usize = 1_000;
/// Maximum number of keys that are checked for a page, 1 µs each. Keys that the tenant may not use are checked and skipped.
const CHECKED_KEYS_MAX: usize = 4_096;
/// Maximum requests of a stream that are read before replies are sent.
const ROUND: usize = 64;
/// Maximum deadline of a request; a longer one is shortened to this value. Does not apply to streams, which may last a day.
const DEADLINE_MAX: Duration = Duration::from_secs(60);

/// The gRPC service of the native protocol, for the connection of one client.
#[derive(Clone)]
pub(super) struct Keys {
    shared: Arc<ServerState>,
    client: Arc<Client>,
    /// Unread replies of the connection.
    unread: Arc<Unread>,
}

/// Metadata of a call, apart from its message.
#[derive(Clone)]
struct CallMetadata {
    /// The deadline of the call; `None` without one.
    due: Option<Instant>,
    trace: Option<TraceParent>,
}

impl CallMetadata {
    /// Reads the metadata of a call with a single message.
    fn of(metadata: &MetadataMap) -> Self {
        Self::within(metadata, DEADLINE_MAX)
    }

    fn within(metadata: &MetadataMap, most: Duration) -> Self {
        let text = |name| metadata.get(name).and_then(|value| value.to_str().ok());
        let timeout = text("grpc-timeout").and_then(grpc_timeout);
        Self {
            due: timeout.and_then(|timeout| Instant::now().checked_add(timeout.min(most))),
            trace: text(TRACEPARENT).and_then(TraceParent::parse),
        }
    }
}

impl Keys {
    pub(super) fn new(shared: Arc<ServerState>, client: Arc<Client>) -> Self {
        Self { shared, client, unread: Arc::default() }
    }

    /// Starts one signature; its reply gets the ID `number`.
    fn begin(&self, inbox: &mut Inbox, number: u64, request: SignRequest, given: &CallMetadata) {
        let scheme = scheme_of(request.scheme());
        let Some((scheme, place)) = scheme.and_then(|scheme| Some((scheme, operation::signing(scheme)?)))
        else {
            self.shared.metrics.error(None, code_name(Failure::NoScheme.grpc()));
            return inbox.refuse(number, Failure::NoScheme);
        };
        let name = key_name(&request);
        let mut call = inbox.call(number, self.entry(place, name, &request, given));
        call.is_node = self.client.is_node();
        let request_timeout = Duration::from_millis(request.timeout_ms.into()).min(DEADLINE_MAX);
        let own = (request.timeout_ms > 0).then(|| call.entry.began() + request_timeout);
        let due = own.into_iter().chain(given.due).min();
        if request.input.len() > INPUT_MAX {
            return call.fail(Failure::TooLong { given: request.input.len(), most: INPUT_MAX });
        }
        let Some(name) = name else { return call.fail(Failure::NoKey) };
        if !self.shared.may_connect(self.client.identity()) {
            return call.fail(Failure::UnknownKey);
        }
        if !request.node.is_empty() {
            let node = request.node.as_slice().try_into().map_or(NodeId([0; 16]), NodeId);
            return self.shared.relay(call, self.client.identity(), node, request, due);
        }
        let terms = Terms { due, policy: &request.policy };
        self.shared.sign(Caller::Native(call), name, scheme, request.input.into(), terms);
    }

    /// Rejects calls of other nodes: they may only request signatures.
    fn refuse_nodes(&self) -> Result<(), Status> {
        if self.client.is_node() {
            return Err(Status::permission_denied("other nodes are allowed to request signatures only"));
        }
        Ok(())
    }

    fn inbox(&self) -> Inbox {
        Inbox::new(Arc::clone(&self.unread))
    }

    fn entry(
        &self,
        place: usize,
        name: Option<KeyName>,
        request: &SignRequest,
        given: &CallMetadata,
    ) -> Entry {
        let tenant = self.client.tenant_of(&request.tenant, &self.shared.tenants);
        let trace = TraceParent::parse(&request.traceparent).or(given.trace);
        let span =
            tracing::enabled!(Level::DEBUG).then(|| span(tenant.name(), OPERATIONS[place].1, name, trace));
        let is_relayed = self.client.is_node() && !request.node.is_empty();
        let client = self.client.identity().spki_sha256();
        let origin = Origin { span, trace, key: name, request_id: None, is_relayed, client };
        Entry::new(self.shared.metrics.clone(), tenant, place, origin)
    }

    /// Seals or unseals data up to a maximum length. `opcode` is an opcode of the Keyless protocol.
    async fn ticket(
        &self,
        opcode: u8,
        metadata: &MetadataMap,
        (bytes, most): (&[u8], usize),
        work: impl FnOnce(&ServerState, Caller, &[u8]),
    ) -> Result<Vec<u8>, Status> {
        let place = operation::place(opcode).map_err(|_| Status::unimplemented("unknown operation"))?;
        let mut inbox = self.inbox();
        let call =
            inbox.call(0, self.entry(place, None, &SignRequest::default(), &CallMetadata::of(metadata)));
        if bytes.len() > most {
            call.fail(Failure::TooLong { given: bytes.len(), most });
        } else {
            work(&self.shared, Caller::Native(call), bytes);
        }
        outcome(inbox.next().await)
    }
}

/// Returns the single reply of a call.
fn outcome(reply: Option<(u64, Outcome)>) -> Result<Vec<u8>, Status> {
    reply.map_or(Err(Failure::Stopping), |(_, outcome)| outcome).map_err(|failure| status(&failure))
}

fn status(failure: &Failure) -> Status {
    Status::new(failure.grpc(), failure.to_string())
}

fn reply(id: u64, outcome: Outcome) -> SignReply {
    let outcome = match outcome {
        Ok(signature) => sign_reply::Outcome::Signature(signature),
        Err(failure) => {
            let (code, message) = (failure.grpc() as i32, failure.to_string());
            sign_reply::Outcome::Failure(proto::Failure { code, message, way: way(&failure).into() })
        }
    };
    SignReply { id, outcome: Some(outcome) }
}

/// Returns the reason why a request did not reach its destination node.
fn way(failure: &Failure) -> proto::failure::Way {
    use proto::failure::Way;
    match failure {
        Failure::Relay(RelayError::NoConnection) => Way::None,
        Failure::Relay(RelayError::Full) => Way::Full,
        Failure::Relay(RelayError::Lost) => Way::Lost,
        Failure::Relay(RelayError::Late) => Way::Late,
        _ => Way::Unspecified,
    }
}

fn key_name(request: &SignRequest) -> Option<KeyName> {
    match request.key.as_ref()? {
        sign_request::Key::Ski(ski) => Some(KeyName::Ski(Ski(ski.as_slice().try_into().ok()?))),
        sign_request::Key::SpkiSha256(hash) => {
            Some(KeyName::Spki(SpkiHash::from_bytes(hash.as_slice().try_into().ok()?)))
        }
    }
}

fn proto_key(key: &Key) -> proto::Key {
    proto::Key {
        ski: key.ski.0.to_vec(),
        spki_sha256: key.spki_sha256.as_bytes().to_vec(),
        kind: key.kind.name().to_owned(),
        public_key: key.signer.spki().to_vec(),
    }
}

/// Creates the tracing span of a request (`--log keyless=debug`) with the caller's span as parent.
fn span(tenant: &str, opcode: &str, name: Option<KeyName>, trace: Option<TraceParent>) -> Span {
    let key = name.map(|name| name.to_string()).unwrap_or_default();
    let (trace_id, parent_id) = trace.map(|trace| (trace.trace_id(), trace.parent_id())).unwrap_or_default();
    tracing::debug_span!("native", tenant, opcode, key, trace_id, parent_id)
}

/// Waits for work until the deadline, and then cancels the work.
async fn with_deadline<T>(due: Option<Instant>, work: impl Future<Output = T>) -> Result<T, Status> {
    match due {
        Some(due) => tokio::time::timeout_at(due.into(), work).await.map_err(|_| status(&Failure::Late)),
        None => Ok(work.await),
    }
}

#[tonic::async_trait]
impl KeyService for Keys {
    type SignStreamStream = SignReplies;

    async fn sign(&self, request: Request<SignRequest>) -> Result<Response<SignReply>, Status> {
        let given = CallMetadata::of(request.metadata());
        let request = request.into_inner();
        let (id, mut inbox) = (request.id, self.inbox());
        self.begin(&mut inbox, id, request, &given);
        let signature = outcome(with_deadline(given.due, inbox.next()).await?)?;
        Ok(Response::new(reply(id, Ok(signature))))
    }

    async fn sign_batch(
        &self,
        request: Request<proto::SignBatchRequest>,
    ) -> Result<Response<proto::SignBatchReply>, Status> {
        let given = CallMetadata::of(request.metadata());
        let requests = request.into_inner().requests;
        if requests.len() > BATCH_MAX {
            let count = requests.len();
            return Err(Status::invalid_argument(format!(
                "{count} requests; at most {BATCH_MAX} are allowed"
            )));
        }
        let ids: Vec<u64> = requests.iter().map(|request| request.id).collect();
        let mut inbox = self.inbox();
        for (number, request) in requests.into_iter().enumerate() {
            self.begin(&mut inbox, number as u64, request, &given);
        }
        let mut replies: Vec<SignReply> = ids.iter().map(|id| reply(*id, Err(Failure::Late))).collect();
        let all = async {
            while let Some((number, outcome)) = inbox.next().await {
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                if let (Some(place), Some(id)) = (replies.get_mut(number), ids.get(number)) {
                    *place = reply(*id, outcome);
                }
            }
        };
        // Replies that are missing at the deadline count as late; the others are returned.
        let _ = with_deadline(given.due, all).await;
        Ok(Response::new(proto::SignBatchReply { replies }))
    }

    async fn sign_stream(
        &self,
        request: Request<Streaming<SignRequest>>,
    ) -> Result<Response<Self::SignStreamStream>, Status> {
        let given = CallMetadata::within(request.metadata(), Duration::MAX);
        Ok(Response::new(SignReplies {
            due: given.due.map(|due| Box::pin(tokio::time::sleep_until(due.into()))),
            stop: Some(Box::pin(self.shared.tasks.stopping().cancelled_owned())),
            given: CallMetadata { due: None, ..given },
            keys: self.clone(),
            requests: Some(request.into_inner()),
            inbox: Inbox::for_stream(Arc::clone(&self.unread)),
        }))
    }

    async fn list_keys(
        &self,
        request: Request<proto::ListKeysRequest>,
    ) -> Result<Response<proto::ListKeysReply>, Status> {
        self.refuse_nodes()?;
        let request = request.into_inner();
        let after = match request.page_token.as_slice() {
            [] => None,
            token => {
                Some(Ski(token.try_into().map_err(|_| Status::invalid_argument("invalid page_token"))?))
            }
        };
        let size = match request.page_size as usize {
            0 => PAGE,
            size => size.min(PAGE_MAX),
        };
        let tenant = self.client.tenant(&self.shared.tenants);
        // The reply is immediate, so only the rate limit applies.
        if let Err(refusal) = tenant.admit(0) {
            self.shared.metrics.refused(refusal);
            tenant.counters().refused(refusal);
            return Err(status(&Failure::Overloaded(refusal)));
        }
        let (mut keys, mut last, mut checked) = (Vec::new(), after, 0);
        while keys.len() < size && checked < CHECKED_KEYS_MAX {
            let some = self.shared.keys.page(last.as_ref(), size - keys.len());
            if some.is_empty() {
                last = None;
                break;
            }
            checked += some.len();
            last = some.last().map(|key| key.ski);
            keys.extend(some.iter().filter(|key| tenant.may_use(key)).map(|key| proto_key(key)));
        }
        let last = last.filter(|last| !self.shared.keys.page(Some(last), 1).is_empty());
        let next_page_token = last.map(|ski| ski.0.to_vec()).unwrap_or_default();
        Ok(Response::new(proto::ListKeysReply { keys, next_page_token }))
    }

    async fn ping(&self, request: Request<proto::PingRequest>) -> Result<Response<proto::PingReply>, Status> {
        if !self.client.is_node() {
            return Ok(Response::new(proto::PingReply::default()));
        }
        let wanted = request.into_inner().wanted;
        let wanted = wanted.iter().filter_map(|node| Some(NodeId(node.as_slice().try_into().ok()?)));
        let router = self.shared.router();
        let reached = router.and_then(|router| router.record_wanted_nodes(self.client.identity(), wanted));
        let way = |(node, way): (NodeId, Duration)| proto::Way {
            node: node.0.to_vec(),
            round_trip_us: u64::try_from(way.as_micros()).unwrap_or(u64::MAX),
        };
        let shares = reached.is_some();
        let ways = reached.unwrap_or_default().into_iter().map(way).collect();
        Ok(Response::new(proto::PingReply { ways, shares }))
    }

    async fn seal(&self, request: Request<proto::SealRequest>) -> Result<Response<proto::SealReply>, Status> {
        self.refuse_nodes()?;
        let (metadata, _, request) = request.into_parts();
        let sealed = self.ticket(0x21, &metadata, (&request.clear, SEALED_MAX), ServerState::seal).await?;
        Ok(Response::new(proto::SealReply { sealed }))
    }

    async fn unseal(
        &self,
        request: Request<proto::UnsealRequest>,
    ) -> Result<Response<proto::UnsealReply>, Status> {
        self.refuse_nodes()?;
        let (metadata, _, request) = request.into_parts();
        let clear = self.ticket(0x22, &metadata, (&request.sealed, INPUT_MAX), ServerState::unseal).await?;
        Ok(Response::new(proto::UnsealReply { clear }))
    }
}

/// The replies of a stream. While the client reads replies, requests are accepted without waiting for earlier ones.
pub(super) struct SignReplies {
    keys: Keys,
    given: CallMetadata,
    /// Incoming requests; `None` after the last one.
    requests: Option<Streaming<SignRequest>>,
    inbox: Inbox,
    due: Option<Pin<Box<Sleep>>>,
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl SignReplies {
    /// Accepts the available requests.
    fn take(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        for _ in 0..ROUND {
            // If a client sends requests without reading replies, no more requests of its stream are read. A stream without
            // expected replies is not blocked by unread replies of other streams.
            if self.inbox.expected() >= 2 * STREAM_MAX || (self.inbox.expected() > 0 && self.inbox.is_full())
            {
                return Ok(());
            }
            let Some(requests) = &mut self.requests else { return Ok(()) };
            match Pin::new(requests).poll_next(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => self.requests = None,
                Poll::Ready(Some(Err(status))) => return Err(status),
                Poll::Ready(Some(Ok(request))) => {
                    let id = request.id;
                    if request.cancel {
                        self.inbox.cancel(id);
                    } else if self.inbox.expected() >= STREAM_MAX {
                        self.keys.shared.metrics.refused(Refusal::Stream);
                        let full = Failure::Overloaded(Refusal::Stream);
                        let relayed = Failure::Relay(RelayError::Full);
                        self.inbox.refuse(id, if request.node.is_empty() { full } else { relayed });
                    } else {
                        self.keys.begin(&mut self.inbox, id, request, &self.given);
                    }
                }
            }
        }
        context.waker().wake_by_ref();
        Ok(())
    }
}

impl Stream for SignReplies {
    type Item = Result<SignReply, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(due) = &mut this.due
            && due.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(Err(status(&Failure::Late))));
        }
        if let Some(stop) = &mut this.stop
            && stop.as_mut().poll(context).is_ready()
        {
            // Pending requests are still answered.
            (this.stop, this.requests) = (None, None);
        }
        if let Err(status) = this.take(context) {
            return Poll::Ready(Some(Err(status)));
        }
        if this.inbox.expected() == 0 && this.requests.is_some() {
            return Poll::Pending;
        }
        let next = ready!(this.inbox.poll(context));
        Poll::Ready(next.map(|(id, outcome)| Ok(reply(id, outcome))))
    }
}
