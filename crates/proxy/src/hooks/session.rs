//! The hooks of one request. They are called for the request in their order, and for its response in the reverse order.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_relay::request_body::RequestBody;
use http_relay::upstream::{BodyFilter, Buffered, UpstreamResponseBody};
use hyper::body::Body as _;
use hyper::header::{CONTENT_LENGTH, HeaderMap};
use hyper::{Request, Response};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use x509::HostOrIp;

use super::authorization::check;
use super::exchange::{Changes, HookFacts, HookReply, RequestHead, Verdict};
use super::fault::HookFault;
use super::fields::{FieldChange, apply};
use super::hook::{Hook, Hooks};
use super::options::{HookProtocol, OnError};
use super::processor::{Part, Processor, body_message, header_message, message_bytes_max};

/// Decision of one hook, for the audit log.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HookDecision {
    pub(crate) decision: &'static str,
    pub(crate) hook: Arc<str>,
}

/// Reason why a hook ends a request or its response.
#[derive(Debug)]
pub(crate) enum HookEnd {
    /// The hook answers the client itself.
    Replied(HookReply),
    /// The hook made no decision.
    Failed(HookFault),
    /// The body has more than this number of bytes, the maximum of the hook.
    TooLarge(usize),
    /// The body could not be read.
    Unread(io::Error),
}

impl From<HookFault> for HookEnd {
    fn from(fault: HookFault) -> Self {
        Self::Failed(fault)
    }
}

impl HookEnd {
    /// Returns the name of this reason in the audit log and in metrics.
    const fn name(&self) -> &'static str {
        match self {
            Self::Replied(_) => "reply",
            Self::Failed(_) => "error",
            Self::TooLarge(_) => "too-large",
            Self::Unread(_) => "unread",
        }
    }
}

/// Kind of a request for the hooks: plain, or an upgrade of the connection's protocol. For an upgrade, hooks get only the header of
/// the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RequestKind {
    Plain,
    Upgrade,
}

/// A hook that also gets the response.
struct OpenHook {
    hook: Arc<Hook>,
    processor: Processor,
    _slot: OwnedSemaphorePermit,
}

/// The hooks of one request.
#[derive(Default)]
pub(crate) struct HookSession {
    open: Vec<OpenHook>,
    decisions: Vec<HookDecision>,
    response_fields: Vec<FieldChange>,
    /// Injected values that were removed from a body before a hook got it.
    removed: u64,
}

impl HookSession {
    /// Asks the hooks of `hosts` about a request, and applies their changes.
    ///
    /// # Errors
    /// The hook that ends the request, and the reason.
    pub(crate) async fn on_request(
        &mut self,
        (hooks, hosts): (&Hooks, &[&HostOrIp]),
        request: &mut Request<RequestBody>,
        facts: &HookFacts<'_>,
        kind: RequestKind,
    ) -> Result<(), (Arc<str>, HookEnd)> {
        for hook in hooks.of(hosts) {
            let outcome = self.call_hook(&hook, request, facts, kind).await;
            self.settle(&hook, outcome)?;
        }
        Ok(())
    }

    /// Asks the hooks of `hosts` about a connection that is tunneled without interception.
    ///
    /// # Errors
    /// As [`Self::on_request`].
    pub(crate) async fn on_tunnel(
        &mut self,
        (hooks, hosts): (&Hooks, &[&HostOrIp]),
        facts: &HookFacts<'_>,
    ) -> Result<(), (Arc<str>, HookEnd)> {
        let (head, headers) = (RequestHead::tunnel(), HeaderMap::new());
        for hook in hooks.of(hosts) {
            let outcome = async {
                let slot = hook.slot()?;
                let (_, verdict) = first_verdict(&hook, facts, (&head, &headers), None, true).await?;
                drop(slot);
                match verdict {
                    Verdict::Reply(reply) => Err(HookEnd::Replied(reply)),
                    Verdict::Continue(_) | Verdict::Done => Ok("allow"),
                }
            };
            let outcome = outcome.await;
            self.settle(&hook, outcome)?;
        }
        Ok(())
    }

    /// Records the decision of a hook. If the hook made no decision, ends the request, unless the hook's [`OnError`] allows it.
    fn settle(
        &mut self,
        hook: &Hook,
        outcome: Result<&'static str, HookEnd>,
    ) -> Result<(), (Arc<str>, HookEnd)> {
        let name = Arc::clone(&hook.name);
        let (decision, settled) = match outcome {
            Ok(decision) => (decision, Ok(())),
            Err(HookEnd::Failed(fault)) if hook.on_error == OnError::Allow => {
                tracing::warn!(hook = %name, %fault, "a hook made no decision, and on_error allows the request");
                ("error-allowed", Ok(()))
            }
            Err(end) => (end.name(), Err((Arc::clone(&name), end))),
        };
        self.decisions.push(HookDecision { decision, hook: name });
        settled
    }

    async fn call_hook(
        &mut self,
        hook: &Arc<Hook>,
        request: &mut Request<RequestBody>,
        facts: &HookFacts<'_>,
        kind: RequestKind,
    ) -> Result<&'static str, HookEnd> {
        let slot = hook.slot()?;
        let has_body = kind == RequestKind::Plain && !request.body().is_end_stream();
        let gets_body = has_body && hook.request_body;
        let body = match gets_body && hook.protocol == HookProtocol::ExtAuthz {
            true => Some(body_of(request, hook).await?),
            false => None,
        };
        let head = RequestHead::of(request);
        let outcome = first_verdict(hook, facts, (&head, request.headers()), body.as_ref(), !has_body);
        let (processor, verdict) = outcome.await?;
        let mut changed = self.apply(request, verdict, kind)?;
        let Some(mut processor) = processor else { return Ok(named(&changed)) };
        if gets_body && !changed.is_final {
            let body = body_of(request, hook).await?;
            let verdict = processor.send(Part::RequestBody, body_message(Part::RequestBody, &body)).await?;
            let more = self.apply(request, verdict, kind)?;
            changed.fields.extend(more.fields);
            (changed.body, changed.is_final) = (more.body, changed.is_final || more.is_final);
        }
        if hook.response_headers || hook.response_body {
            self.open.push(OpenHook { hook: Arc::clone(hook), processor, _slot: slot });
        }
        Ok(named(&changed))
    }

    /// Applies a hook's verdict about a request.
    fn apply(
        &mut self,
        request: &mut Request<RequestBody>,
        verdict: Verdict,
        kind: RequestKind,
    ) -> Result<Changes, HookEnd> {
        let changes = match verdict {
            Verdict::Continue(changes) => changes,
            Verdict::Reply(reply) => return Err(HookEnd::Replied(reply)),
            Verdict::Done => Changes { is_final: true, ..Changes::default() },
        };
        if changes.body.is_some() && kind == RequestKind::Upgrade {
            return Err(HookFault::Invalid("it adds a body to a request that changes the protocol").into());
        }
        changes.apply(request.headers_mut());
        if let Some(body) = &changes.body {
            request.headers_mut().remove(CONTENT_LENGTH);
            request.body_mut().replace(body.clone());
        }
        self.response_fields.extend(changes.response_fields.iter().cloned());
        Ok(changes)
    }

    /// Returns whether a hook gets the body of the response.
    pub(crate) fn reads_response_body(&self) -> bool {
        self.open.iter().any(|open| open.hook.response_body)
    }

    /// Returns whether no hook changes the response.
    pub(crate) fn is_over(&self) -> bool {
        self.open.is_empty() && self.response_fields.is_empty()
    }

    /// Takes the decisions of hooks since the last call.
    pub(crate) fn take_decisions(&mut self) -> Vec<HookDecision> {
        std::mem::take(&mut self.decisions)
    }

    /// Returns the number of injected values that were removed from the body that hooks got.
    pub(crate) fn removed(&self) -> u64 {
        self.removed
    }

    /// Asks the hooks about a response, and applies their changes. A hook gets the body after it passed `filter`.
    ///
    /// # Errors
    /// The hook that ends the response, and the reason.
    pub(crate) async fn on_response(
        &mut self,
        response: &mut Response<UpstreamResponseBody>,
        filter: &mut Option<impl BodyFilter + 'static>,
    ) -> Result<(), (Arc<str>, HookEnd)> {
        while let Some(mut open) = self.open.pop() {
            let outcome = self.call_hook_on_response(&mut open, response, filter).await;
            self.settle(&open.hook, outcome)?;
        }
        apply(response.headers_mut(), &std::mem::take(&mut self.response_fields));
        Ok(())
    }

    async fn call_hook_on_response(
        &mut self,
        open: &mut OpenHook,
        response: &mut Response<UpstreamResponseBody>,
        filter: &mut Option<impl BodyFilter + 'static>,
    ) -> Result<&'static str, HookEnd> {
        let OpenHook { hook, processor, .. } = open;
        let has_body = !response.body().is_end_stream();
        let mut changed = Changes::default();
        if hook.response_headers {
            let status = [(":status", response.status().as_str().to_owned())];
            let message = header_message(Part::ResponseHeaders, &status, response.headers(), !has_body);
            let verdict = processor.send(Part::ResponseHeaders, message).await?;
            changed = apply_to_response(response, filter, verdict)?;
        }
        if hook.response_body && has_body && !changed.is_final {
            let most = hook.body_bytes_max;
            self.removed += buffer(response, filter, most).await?;
            let body = response.body().buffered().cloned().unwrap_or_default();
            let verdict = processor.send(Part::ResponseBody, body_message(Part::ResponseBody, &body)).await?;
            let more = apply_to_response(response, filter, verdict)?;
            changed.fields.extend(more.fields);
            changed.body = more.body;
        }
        Ok(named(&changed))
    }
}

fn named(changes: &Changes) -> &'static str {
    if changes.is_empty() { "allow" } else { "change" }
}

/// Sends the first message of a request to a hook. Also returns the stream of external processing.
async fn first_verdict(
    hook: &Hook,
    facts: &HookFacts<'_>,
    (head, headers): (&RequestHead, &HeaderMap),
    body: Option<&Bytes>,
    is_end: bool,
) -> Result<(Option<Processor>, Verdict), HookFault> {
    match hook.protocol {
        HookProtocol::ExtAuthz => {
            let bytes = message_bytes_max(hook.body_bytes_max);
            let outcome = check(hook.channel(), bytes, facts, (head, headers), body);
            let verdict = tokio::time::timeout(hook.timeout, outcome).await;
            Ok((None, verdict.map_err(|_| HookFault::TimedOut(hook.timeout))??))
        }
        HookProtocol::ExtProc => {
            let first = header_message(Part::RequestHeaders, &facts.pseudo_fields(head), headers, is_end);
            let limits = (hook.timeout, hook.body_bytes_max);
            let (processor, verdict) = Processor::open(hook.channel(), limits, facts, first).await?;
            Ok((Some(processor), verdict))
        }
    }
}

/// Reads the whole body of a request.
async fn body_of(request: &mut Request<RequestBody>, hook: &Hook) -> Result<Bytes, HookEnd> {
    let most = hook.body_bytes_max;
    match request.body_mut().buffer(most).await {
        Ok(true) => Ok(request.body().buffered().cloned().unwrap_or_default()),
        Ok(false) => Err(HookEnd::TooLarge(most)),
        Err(error) => Err(HookEnd::Unread(error)),
    }
}

/// Reads the whole body of a response through `filter`. Returns the number of injected values that were removed.
async fn buffer(
    response: &mut Response<UpstreamResponseBody>,
    filter: &mut Option<impl BodyFilter + 'static>,
    most: usize,
) -> Result<u64, HookEnd> {
    let filter = filter.take().map(|filter| Box::new(filter) as Box<dyn BodyFilter>);
    match response.body_mut().buffer(filter, most).await {
        Buffered::Whole { removed } => {
            // The length may be that of the encoded or unfiltered body.
            response.headers_mut().remove(CONTENT_LENGTH);
            Ok(removed)
        }
        Buffered::TooLarge => Err(HookEnd::TooLarge(most)),
        Buffered::Broken(error) => Err(HookEnd::Unread(error)),
    }
}

/// Applies a hook's verdict about a response.
fn apply_to_response(
    response: &mut Response<UpstreamResponseBody>,
    filter: &mut Option<impl BodyFilter + 'static>,
    verdict: Verdict,
) -> Result<Changes, HookEnd> {
    let changes = match verdict {
        Verdict::Continue(changes) => changes,
        Verdict::Reply(reply) => return Err(HookEnd::Replied(reply)),
        Verdict::Done => Changes { is_final: true, ..Changes::default() },
    };
    changes.apply(response.headers_mut());
    if let Some(body) = &changes.body {
        // The hook sent a new body, which contains no injected value.
        *filter = None;
        response.headers_mut().remove(CONTENT_LENGTH);
        response.body_mut().replace(body.clone());
    }
    Ok(changes)
}
