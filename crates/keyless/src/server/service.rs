//! What is asked for by the native protocol, call by call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use futures_util::Stream;
use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status, Streaming};
use tracing::{Level, Span};
use x509::SpkiHash;

use super::Shared;
use super::entry::{Entry, Failure};
use super::replies::{Inbox, Outcome};
use super::work::{Caller, KeyName};
use crate::metrics::Refusal;
use crate::native::proto::key_service_server::KeyService;
use crate::native::proto::{self, SignReply, SignRequest, sign_reply, sign_request};
use crate::native::{TRACEPARENT, TraceParent, code_name, grpc_timeout, scheme_of};
use crate::operation::{self, OPERATIONS};
use crate::tenant::Client;
use crate::wire::Ski;

/// Octets of a message: a batch of messages of 4 KB, or sixteen of the longest.
pub(super) const MESSAGE_MAX: usize = 1 << 20;
/// Items of a batch.
pub const BATCH_MAX: usize = 256;
/// Octets of what is signed or sealed: what the Keyless protocol can carry.
pub const INPUT_MAX: usize = 65_532;
/// Requests of one stream under way, replies that are not read yet among them: some 1 KB each.
pub const STREAM_MAX: usize = 4_096;
/// Keys of a page, unless it is said otherwise and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1_000;
/// Requests of a stream that are taken before replies have their turn.
const ROUND: usize = 64;
/// A deadline further away is taken as this one.
const DEADLINE_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// The service as one client sees it.
#[derive(Clone)]
pub(super) struct Keys {
    shared: Arc<Shared>,
    client: Arc<Client>,
}

/// What comes with a call beside its message.
#[derive(Clone)]
struct Given {
    /// When all of it is due; `None` when it is not said.
    due: Option<Instant>,
    trace: Option<TraceParent>,
}

impl Given {
    fn of(metadata: &MetadataMap) -> Self {
        let text = |name| metadata.get(name).and_then(|value| value.to_str().ok());
        let timeout = text("grpc-timeout").and_then(grpc_timeout);
        Self {
            due: timeout.map(|timeout| Instant::now() + timeout.min(DEADLINE_MAX)),
            trace: text(TRACEPARENT).and_then(TraceParent::parse),
        }
    }
}

impl Keys {
    pub(super) fn new(shared: Arc<Shared>, client: Arc<Client>) -> Self {
        Self { shared, client }
    }

    /// Begins one signature; its reply comes under `number`.
    fn begin(&self, inbox: &mut Inbox, number: u64, request: SignRequest, given: &Given) {
        let scheme = scheme_of(request.scheme());
        let Some((scheme, place)) = scheme.and_then(|scheme| Some((scheme, operation::signing(scheme)?)))
        else {
            self.shared.metrics.error(None, code_name(Failure::NoScheme.grpc()));
            return inbox.refuse(number, Failure::NoScheme);
        };
        let name = key_name(&request);
        let call = inbox.call(number, self.entry(place, name, &request.traceparent, given));
        let began = call.entry.began();
        let patience = match request.timeout_ms {
            0 => self.shared.options.deadline,
            ms => std::time::Duration::from_millis(ms.into()).min(DEADLINE_MAX),
        };
        let own = (request.timeout_ms > 0 || given.due.is_none()).then(|| began + patience);
        let deadline = own.into_iter().chain(given.due).min().unwrap_or(began);
        if request.input.len() > INPUT_MAX {
            return call.fail(Failure::TooLong { given: request.input.len(), most: INPUT_MAX });
        }
        let Some(name) = name else { return call.fail(Failure::NoKey) };
        self.shared.sign(Caller::Native(call), name, scheme, request.input.into(), deadline);
    }

    fn entry(&self, place: usize, name: Option<KeyName>, own_trace: &str, given: &Given) -> Entry {
        let tenant = self.client.tenant(&self.shared.tenants);
        let span = if tracing::enabled!(Level::DEBUG) {
            let trace = TraceParent::parse(own_trace).or(given.trace);
            span(tenant.name(), OPERATIONS[place].1, name, trace)
        } else {
            Span::none()
        };
        Entry::new(self.shared.metrics.clone(), tenant, place, span)
    }

    /// Seals or unseals: `opcode` is the Keyless protocol's.
    async fn ticket(
        &self,
        opcode: u8,
        metadata: &MetadataMap,
        octets: &[u8],
        work: impl FnOnce(&Shared, Caller, &[u8]),
    ) -> Result<Vec<u8>, Status> {
        let place = operation::place(opcode).map_err(|_| Status::unimplemented("no such operation"))?;
        let mut inbox = Inbox::new();
        let call = inbox.call(0, self.entry(place, None, "", &Given::of(metadata)));
        if octets.len() > INPUT_MAX {
            call.fail(Failure::TooLong { given: octets.len(), most: INPUT_MAX });
        } else {
            work(&self.shared, Caller::Native(call), octets);
        }
        outcome(inbox.next().await)
    }
}

/// The one reply of a call.
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
            sign_reply::Outcome::Failure(proto::Failure { code, message })
        }
    };
    SignReply { id, outcome: Some(outcome) }
}

fn key_name(request: &SignRequest) -> Option<KeyName> {
    match request.key.as_ref()? {
        sign_request::Key::Ski(ski) => Some(KeyName::Ski(Ski(ski.as_slice().try_into().ok()?))),
        sign_request::Key::SpkiSha256(hash) => {
            Some(KeyName::Spki(SpkiHash::from_bytes(hash.as_slice().try_into().ok()?)))
        }
    }
}

/// What a request is known by, for whoever looks (`--log keyless=debug`); its parent is the caller's.
fn span(tenant: &str, opcode: &str, name: Option<KeyName>, trace: Option<TraceParent>) -> Span {
    let key = match name {
        Some(KeyName::Ski(ski)) => ski.to_string(),
        Some(KeyName::Spki(spki)) => spki.to_string(),
        None => String::new(),
    };
    let (trace_id, parent_id) = trace.map(|trace| (trace.trace_id(), trace.parent_id())).unwrap_or_default();
    tracing::debug_span!("native", tenant, opcode, key, trace_id, parent_id)
}

/// Waits for what is under way, until it is due; who is late has had its work cancelled.
async fn in_time<T>(due: Option<Instant>, work: impl Future<Output = T>) -> Result<T, Status> {
    match due {
        Some(due) => tokio::time::timeout_at(due.into(), work).await.map_err(|_| status(&Failure::Late)),
        None => Ok(work.await),
    }
}

#[tonic::async_trait]
impl KeyService for Keys {
    type SignStreamStream = Answers;

    async fn sign(&self, request: Request<SignRequest>) -> Result<Response<SignReply>, Status> {
        let given = Given::of(request.metadata());
        let request = request.into_inner();
        let (id, mut inbox) = (request.id, Inbox::new());
        self.begin(&mut inbox, id, request, &given);
        let signature = outcome(in_time(given.due, inbox.next()).await?)?;
        Ok(Response::new(reply(id, Ok(signature))))
    }

    async fn sign_batch(
        &self,
        request: Request<proto::SignBatchRequest>,
    ) -> Result<Response<proto::SignBatchReply>, Status> {
        let given = Given::of(request.metadata());
        let requests = request.into_inner().requests;
        if requests.len() > BATCH_MAX {
            let count = requests.len();
            return Err(Status::invalid_argument(format!("{count} requests, at most {BATCH_MAX} are taken")));
        }
        let ids: Vec<u64> = requests.iter().map(|request| request.id).collect();
        let mut inbox = Inbox::new();
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
        // What is not there by then is late; the rest counts.
        let _ = in_time(given.due, all).await;
        Ok(Response::new(proto::SignBatchReply { replies }))
    }

    async fn sign_stream(
        &self,
        request: Request<Streaming<SignRequest>>,
    ) -> Result<Response<Self::SignStreamStream>, Status> {
        let given = Given::of(request.metadata());
        Ok(Response::new(Answers {
            due: given.due.map(|due| Box::pin(tokio::time::sleep_until(due.into()))),
            stop: Some(Box::pin(self.shared.stopping.clone().cancelled_owned())),
            given: Given { due: None, ..given },
            keys: self.clone(),
            requests: Some(request.into_inner()),
            inbox: Inbox::new(),
        }))
    }

    async fn list_keys(
        &self,
        request: Request<proto::ListKeysRequest>,
    ) -> Result<Response<proto::ListKeysReply>, Status> {
        let request = request.into_inner();
        let after = match request.page_token.as_slice() {
            [] => None,
            token => Some(Ski(token
                .try_into()
                .map_err(|_| Status::invalid_argument("page_token is that of no page"))?)),
        };
        let size = match request.page_size as usize {
            0 => PAGE,
            size => size.min(PAGE_MAX),
        };
        let tenant = self.client.tenant(&self.shared.tenants);
        // It is answered here and now: its rate alone counts.
        if let Err(refusal) = tenant.admit(0) {
            self.shared.metrics.refused(refusal);
            tenant.counters().refused(refusal);
            return Err(status(&Failure::Overloaded(refusal)));
        }
        let found = self.shared.keys.page(after.as_ref(), size + 1, |key| tenant.may_use(key));
        let next = if found.len() > size { found.get(size - 1).map(|key| key.ski) } else { None };
        let keys = found.iter().take(size).map(|key| proto::Key {
            ski: key.ski.0.to_vec(),
            spki_sha256: key.spki_sha256.as_bytes().to_vec(),
            kind: key.kind.name().to_owned(),
            public_key: key.signer.spki().to_vec(),
        });
        let next_page_token = next.map(|ski| ski.0.to_vec()).unwrap_or_default();
        Ok(Response::new(proto::ListKeysReply { keys: keys.collect(), next_page_token }))
    }

    async fn seal(&self, request: Request<proto::SealRequest>) -> Result<Response<proto::SealReply>, Status> {
        let (metadata, _, request) = request.into_parts();
        let sealed = self.ticket(0x21, &metadata, &request.clear, Shared::seal).await?;
        Ok(Response::new(proto::SealReply { sealed }))
    }

    async fn unseal(
        &self,
        request: Request<proto::UnsealRequest>,
    ) -> Result<Response<proto::UnsealReply>, Status> {
        let (metadata, _, request) = request.into_parts();
        let clear = self.ticket(0x22, &metadata, &request.sealed, Shared::unseal).await?;
        Ok(Response::new(proto::UnsealReply { clear }))
    }
}

/// The replies of a stream. While its reader keeps up, requests are taken as they come, whatever waits.
pub(super) struct Answers {
    keys: Keys,
    given: Given,
    /// `None` when no more come.
    requests: Option<Streaming<SignRequest>>,
    inbox: Inbox,
    due: Option<Pin<Box<Sleep>>>,
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Answers {
    /// Takes the requests that there are.
    fn take(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        for _ in 0..ROUND {
            // Who asks without end and reads no replies waits for itself: the stream's window closes.
            if self.inbox.expected() >= 2 * STREAM_MAX {
                return Ok(());
            }
            let Some(requests) = &mut self.requests else { return Ok(()) };
            match Pin::new(requests).poll_next(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(None) => self.requests = None,
                Poll::Ready(Some(Err(status))) => return Err(status),
                Poll::Ready(Some(Ok(request))) => {
                    let id = request.id;
                    if self.inbox.expected() >= STREAM_MAX {
                        self.keys.shared.metrics.refused(Refusal::Stream);
                        self.inbox.refuse(id, Failure::Overloaded(Refusal::Stream));
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

impl Stream for Answers {
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
            // What was asked for is answered still.
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
