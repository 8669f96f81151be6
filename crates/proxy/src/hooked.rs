//! Calls the hooks for requests, responses and tunnels. Records their decisions in metrics and the audit log, and responds to the
//! client if a hook ends the request.

use std::sync::Arc;

use http_relay::access_log::{Entry, Judgement};
use http_relay::client::Client;
use http_relay::fields::clean;
use http_relay::page::{self, Body};
use http_relay::request_body::RequestBody;
use http_relay::stall::UploadStatus;
use http_relay::target::Target;
use http_relay::unanswered::upload_failure_response;
use http_relay::upstream::{BodyFilter, UpstreamResponseBody};
use hyper::{Request, Response, StatusCode};
use x509::HostOrIp;

use super::audited::AuditedDecision;
use super::connection_context::ConnectionContext;
use super::gateway::Refused;
use super::hooks::{HookDecision, HookEnd, HookFacts, HookSession, RequestKind};
use super::policy::Action;
use super::policy_page::{PolicyRefusal, shown};
use super::proxy::Proxy;

/// Reason in logs of a request or response that a hook ends.
const REASON: &str = "hook";

/// Context of a request that is sent to the hooks.
pub(super) struct HookedRequest<'a> {
    pub(super) context: &'a ConnectionContext,
    /// The host that the request names.
    pub(super) host: &'a HostOrIp,
    pub(super) judgement: Option<&'a Judgement>,
    pub(super) kind: RequestKind,
    pub(super) uploading: &'a UploadStatus,
}

impl Proxy {
    /// Calls the hooks for a request, and applies their changes. Returns the hooks that also get the response, and the decision to
    /// audit.
    ///
    /// # Errors
    /// The response to the client, if a hook ends the request. The refusal is already audited and logged.
    pub(super) async fn pass_request_hooks(
        &self,
        request: &mut Request<RequestBody>,
        about: HookedRequest<'_>,
        audited: Option<AuditedDecision>,
        entry: &mut Option<Box<Entry>>,
    ) -> Result<(HookSession, Option<AuditedDecision>), Response<Body>> {
        let mut session = HookSession::default();
        if self.hooks.is_empty() {
            return Ok((session, audited));
        }
        let HookedRequest { context, host, judgement, kind, uploading } = about;
        let target = &context.origin.target;
        let facts = HookFacts {
            client: &context.client,
            identity: judgement.and_then(|judgement| judgement.identity.clone()),
            rule: judgement.and_then(|judgement| judgement.policy_rule.clone()),
            host,
            port: target.port,
            scheme: if context.origin.server.is_some() { "https" } else { "http" },
            id: audited.as_ref().map(AuditedDecision::id).unwrap_or_default(),
        };
        // The host of a request may differ from the CONNECT target and from the TLS server name. The hooks of all these hosts get
        // the request.
        let hosts: Vec<&HostOrIp> =
            [Some(host), context.origin.server.as_ref(), Some(&target.name)].into_iter().flatten().collect();
        // Boxed to keep this future small, because most proxies have no hooks.
        let passed = Box::pin(session.on_request((&self.hooks, &hosts), request, &facts, kind)).await;
        let decisions = session.take_decisions();
        self.count_hooks(&decisions);
        let audited = audited.map(|audited| audited.with_hooks(&decisions));
        let Err((hook, end)) = passed else { return Ok((session, audited)) };
        self.metrics.rejected();
        if let Some(audited) = &audited {
            // The request is refused even if the audit event cannot be written.
            let _ = self.requests.audit(|| audited.denied(REASON)).await;
        }
        let mut refused = refusal(&hook, &end, Phase::Request, judgement);
        refused.page.host = host.to_string();
        refused.page.method = shown(request.method().as_str());
        refused.page.path = shown(request.uri().path());
        entry.iter_mut().for_each(|entry| refused.note(entry));
        Err(match end {
            HookEnd::Unread(_) => {
                upload_failure_response(uploading, request.version()).unwrap_or_else(|| {
                    let detail = "the request has no whole body";
                    page::problem(StatusCode::BAD_REQUEST, "http_request_error", detail)
                })
            }
            end => answer(end, &refused.page, request.headers()),
        })
    }

    /// Calls the hooks for a response, and applies their changes. A hook gets the body after `filter`.
    ///
    /// # Errors
    /// The response to the client, if a hook ends the server's response.
    pub(super) async fn pass_response_hooks(
        &self,
        (session, filter): (&mut HookSession, &mut Option<impl BodyFilter + 'static>),
        response: &mut Response<UpstreamResponseBody>,
        audited: Option<&AuditedDecision>,
        entry: &mut Option<Box<Entry>>,
    ) -> Result<(), Response<Body>> {
        if session.is_over() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(());
        }
        clean(response.headers_mut());
        let passed = Box::pin(session.on_response(response, filter)).await;
        let decisions = session.take_decisions();
        self.count_hooks(&decisions);
        if let Some(audited) = audited {
            audited.note_response_hooks(decisions);
        }
        if session.removed() > 0 {
            entry.iter_mut().for_each(|entry| entry.removed(session.removed()));
        }
        let Err((hook, end)) = passed else { return Ok(()) };
        entry.iter_mut().for_each(|entry| entry.set_refusal_reason(REASON));
        let refused = refusal(&hook, &end, Phase::Response, None);
        Err(answer(end, &refused.page, &hyper::HeaderMap::new()))
    }

    /// Calls the hooks for a connection to `target` for the host `name` that is tunneled without interception.
    ///
    /// # Errors
    /// A hook refuses the tunnel.
    pub(super) async fn pass_tunnel_hooks(
        &self,
        client: &Client,
        (target, name): (&Target, &HostOrIp),
        judgement: Option<&Judgement>,
    ) -> Result<Vec<HookDecision>, Box<Refused>> {
        if self.hooks.is_empty() {
            return Ok(Vec::new());
        }
        let facts = HookFacts {
            client,
            identity: judgement.and_then(|judgement| judgement.identity.clone()),
            rule: judgement.and_then(|judgement| judgement.policy_rule.clone()),
            host: name,
            port: target.port,
            scheme: "",
            id: Arc::default(),
        };
        let mut session = HookSession::default();
        let passed = Box::pin(session.on_tunnel((&self.hooks, &[name, &target.name]), &facts)).await;
        let decisions = session.take_decisions();
        self.count_hooks(&decisions);
        let Err((hook, end)) = passed else { return Ok(decisions) };
        let mut refused = refusal(&hook, &end, Phase::Request, judgement);
        refused.page.host = name.to_string();
        refused.page.method = "CONNECT".into();
        refused.hooks = decisions;
        Err(refused)
    }

    fn count_hooks(&self, decisions: &[HookDecision]) {
        for HookDecision { decision, hook } in decisions {
            self.requests.metrics().hooked(hook, decision);
        }
    }
}

/// The message that a hook refuses: the request or the response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    Request,
    Response,
}

/// Returns the refusal of a request or response by a hook. Does not set host, method and path.
fn refusal(hook: &str, end: &HookEnd, phase: Phase, judgement: Option<&Judgement>) -> Box<Refused> {
    let (message, too_large) = match phase {
        Phase::Request => ("request", StatusCode::PAYLOAD_TOO_LARGE),
        Phase::Response => ("response", StatusCode::BAD_GATEWAY),
    };
    let failed = match phase {
        Phase::Request => StatusCode::SERVICE_UNAVAILABLE,
        Phase::Response => StatusCode::BAD_GATEWAY,
    };
    let (status, title, detail, advice) = match end {
        HookEnd::Replied(reply) => (
            reply.code(),
            "A hook of this proxy denies the request",
            format!("the hook {hook} denies the {message}"),
            "Ask the operator of this proxy why its hook denies this.",
        ),
        HookEnd::Failed(fault) => {
            tracing::warn!(hook, %fault, message, "a hook made no decision: the request or response is refused");
            (
                failed,
                "A hook of this proxy made no decision",
                format!("the hook {hook} made no decision about the {message}"),
                "Retry later. If it persists, ask the operator of this proxy to check the hook.",
            )
        }
        HookEnd::TooLarge(most) => (
            too_large,
            "The body is larger than a hook of this proxy accepts",
            format!(
                "the hook {hook} gets bodies of at most {most} bytes, and the body of the {message} is larger"
            ),
            "Send a smaller body, or ask the operator of this proxy to raise body_bytes_max of the hook.",
        ),
        HookEnd::Unread(error) => (
            failed,
            "The body could not be read",
            format!("the body of the {message} ended early, before the hook {hook} could get it: {error}"),
            "Retry the request.",
        ),
    };
    let (identity, rule) = judgement
        .map(|judgement| (judgement.identity.clone(), judgement.policy_rule.clone()))
        .unwrap_or_default();
    let page = PolicyRefusal {
        title,
        status: status.as_u16(),
        detail,
        advice: advice.into(),
        reason: REASON,
        rule: rule.clone(),
        identity: identity.clone(),
        host: String::new(),
        method: String::new(),
        path: String::new(),
        hold: None,
        retry_after: None,
    };
    let judgement = Judgement { identity, decision: Action::Deny.name(), policy_rule: rule };
    Box::new(Refused { page, judgement, held: None, hooks: Vec::new() })
}

/// Returns the response to the client: the hook's response, or a page that says why the hook ended the request.
fn answer(end: HookEnd, page: &PolicyRefusal, headers: &hyper::HeaderMap) -> Response<Body> {
    match end {
        HookEnd::Replied(reply) if !reply.is_bare_refusal() => reply.response(),
        _ => page.page(headers),
    }
}
