//! External processing (`ext_proc`): one stream for each request. The proxy sends one message at a time, and waits for its answer.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use hyper::{HeaderMap, StatusCode};
use tokio::sync::mpsc;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Streaming};

use super::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use super::envoy::service::ext_proc::v3 as ext_proc;
use super::envoy::service::ext_proc::v3::body_mutation::Mutation;
use super::envoy::service::ext_proc::v3::common_response::ResponseStatus;
use super::envoy::service::ext_proc::v3::external_processor_client::ExternalProcessorClient;
use super::envoy::service::ext_proc::v3::processing_request::Request as Message;
use super::envoy::service::ext_proc::v3::processing_response::Response as Answer;
use super::exchange::{Changes, HookFacts, HookReply, Verdict};
use super::fault::HookFault;
use super::fields::{changes, header_map};

/// A field without an action is appended: that is the default value of the action.
const PLAIN: HeaderAppendAction = HeaderAppendAction::AppendIfExistsOrAdd;

/// The part of a request or response that a message contains. The response of the service must be for the same part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    RequestHeaders,
    RequestBody,
    ResponseHeaders,
    ResponseBody,
}

/// The stream of one request.
pub(super) struct Processor {
    queue: mpsc::Sender<ext_proc::ProcessingRequest>,
    answers: Streaming<ext_proc::ProcessingResponse>,
    timeout: Duration,
    bytes_max: usize,
    has_answered: bool,
}

impl Processor {
    /// Opens a stream with its first message, and returns the stream with the verdict about the message.
    ///
    /// # Errors
    /// [`HookFault`]
    pub(super) async fn open(
        channel: Channel,
        (timeout, bytes_max): (Duration, usize),
        facts: &HookFacts<'_>,
        first: Message,
    ) -> Result<(Self, Verdict), HookFault> {
        let late = |_| HookFault::TimedOut(timeout);
        let (queue, mut queued) = mpsc::channel(1);
        let first = ext_proc::ProcessingRequest { request: Some(first) };
        queue.try_send(first).map_err(|_| HookFault::Ended)?;
        let messages = stream::poll_fn(move |cx| queued.poll_recv(cx));
        let mut client =
            ExternalProcessorClient::new(channel).max_decoding_message_size(message_bytes_max(bytes_max));
        // A service may send its header with the first answer, so one timeout covers both.
        let opened = async {
            let answers = client.process(with_facts(messages, facts)).await?.into_inner();
            let mut opened = Self { queue, answers, timeout, bytes_max, has_answered: false };
            let verdict = opened.verdict(Part::RequestHeaders).await?;
            Ok((opened, verdict))
        };
        tokio::time::timeout(timeout, opened).await.map_err(late)?
    }

    /// Sends a message, and returns the verdict about its part.
    ///
    /// # Errors
    /// [`HookFault`]
    pub(super) async fn send(&mut self, part: Part, message: Message) -> Result<Verdict, HookFault> {
        let (queue, timeout) = (self.queue.clone(), self.timeout);
        let exchanged = async {
            // A closed queue means that the service has ended the stream: its status follows.
            let _ = queue.send(ext_proc::ProcessingRequest { request: Some(message) }).await;
            self.verdict(part).await
        };
        tokio::time::timeout(timeout, exchanged).await.map_err(|_| HookFault::TimedOut(timeout))?
    }

    async fn verdict(&mut self, part: Part) -> Result<Verdict, HookFault> {
        let answer = match self.answers.message().await? {
            Some(answer) => answer.response.ok_or(HookFault::Invalid("it is for no part of the message"))?,
            // After an answer, a service may end the stream: it needs nothing more of the request.
            None if self.has_answered => return Ok(Verdict::Done),
            None => return Err(HookFault::Ended),
        };
        self.has_answered = true;
        let common = match (part, answer) {
            (_, Answer::ImmediateResponse(reply)) => return immediate(reply).map(Verdict::Reply),
            (Part::RequestHeaders, Answer::RequestHeaders(answer)) => answer.response,
            (Part::ResponseHeaders, Answer::ResponseHeaders(answer)) => answer.response,
            (Part::RequestBody, Answer::RequestBody(answer)) => answer.response,
            (Part::ResponseBody, Answer::ResponseBody(answer)) => answer.response,
            _ => return Err(HookFault::Invalid("it is for another part of the message")),
        };
        let is_body = matches!(part, Part::RequestBody | Part::ResponseBody);
        common.map_or(Ok(Changes::default()), |common| self.read(common, is_body)).map(Verdict::Continue)
    }

    fn read(&self, common: ext_proc::CommonResponse, is_body: bool) -> Result<Changes, HookFault> {
        let is_final = common.status() == ResponseStatus::ContinueAndReplace;
        let fields = match common.header_mutation {
            Some(mutation) => changes(&mutation.set_headers, &mutation.remove_headers, PLAIN)?,
            None => Vec::new(),
        };
        let body = match common.body_mutation.and_then(|mutation| mutation.mutation) {
            Some(Mutation::Body(body)) => Some(Bytes::from(body)),
            Some(Mutation::ClearBody(true)) => Some(Bytes::new()),
            Some(Mutation::ClearBody(false)) | None => None,
        };
        if body.is_some() && !is_body && !is_final {
            return Err(HookFault::Invalid("it has a body for a header, without CONTINUE_AND_REPLACE"));
        }
        if body.as_ref().is_some_and(|body| body.len() > self.bytes_max) {
            return Err(HookFault::Invalid("its body is larger than body_bytes_max"));
        }
        Ok(Changes { fields, body, is_final, ..Changes::default() })
    }
}

/// Returns the maximum bytes of an answer: a body, and changes of the header.
pub(super) const fn message_bytes_max(body_bytes_max: usize) -> usize {
    body_bytes_max + (256 << 10)
}

/// Returns the request that opens the stream. Its metadata contains the facts for which the messages have no field.
fn with_facts<S>(messages: S, facts: &HookFacts<'_>) -> Request<S> {
    let mut request = Request::new(messages);
    let address = facts.client.ip().to_string();
    for (name, value) in [
        ("x-bulla-client", Some(&*address)),
        ("x-bulla-principal", Some(facts.principal())),
        ("x-bulla-rule", facts.rule.as_deref()),
        ("x-bulla-request", Some(&*facts.id)),
    ] {
        // Metadata values are ASCII, so other characters are percent-encoded.
        let value = value
            .filter(|value| !value.is_empty())
            .map(|value| outbound::http::percent_encoded(value).to_string());
        if let Some(value) = value.and_then(|value| MetadataValue::try_from(value).ok()) {
            request.metadata_mut().insert(name, value);
        }
    }
    request
}

/// Returns the message with the header of a request or a response.
pub(super) fn header_message(
    part: Part,
    pseudo: &[(&'static str, String)],
    headers: &HeaderMap,
    end_of_stream: bool,
) -> Message {
    let headers = ext_proc::HttpHeaders { headers: Some(header_map(pseudo, headers)), end_of_stream };
    match part {
        Part::ResponseHeaders => Message::ResponseHeaders(headers),
        _ => Message::RequestHeaders(headers),
    }
}

/// Returns the message with a whole body.
pub(super) fn body_message(part: Part, body: &Bytes) -> Message {
    let body = ext_proc::HttpBody { body: body.to_vec(), end_of_stream: true };
    match part {
        Part::ResponseBody => Message::ResponseBody(body),
        _ => Message::RequestBody(body),
    }
}

fn immediate(reply: ext_proc::ImmediateResponse) -> Result<HookReply, HookFault> {
    let fields = match reply.headers {
        Some(mutation) => changes(&mutation.set_headers, &mutation.remove_headers, PLAIN)?,
        None => Vec::new(),
    };
    let status = HookReply::status(reply.status.map(|status| status.code), StatusCode::OK)?;
    Ok(HookReply { status, fields, body: reply.body.into() })
}
