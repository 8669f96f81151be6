//! Audit events: the decision about a request or a connection, and the credentials that are injected into the request.

use std::sync::Arc;

use http_relay::access_log::{EndHandler, Ended, Judgement, Replay};
use http_relay::client::Client;
use http_relay::page::{self, Body};
use http_relay::target::Target;
use hyper::{Request, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::json;
use uuid::Uuid;
use x509::HostOrIp;

use super::connection_context::ConnectionContext;
use super::holds::HoldRecord;
use super::hooks::HookDecision;
use super::requests::{AuditEvent, AuditLog, AuditWriteError, Injected};

/// Maximum bytes of a URL path in an event.
pub(super) const PATH_BYTES_MAX: usize = 2_048;
/// Maximum bytes of an HTTP method in an event.
const METHOD_BYTES_MAX: usize = 32;

/// A decision that is written to the audit log before it takes effect.
#[derive(Clone, Debug)]
pub(super) struct AuditedDecision {
    event: AuditEvent,
    /// ID that the event of the decision and the event of the outcome have in common.
    id: Arc<str>,
    /// Decisions of hooks about the response, for the outcome event.
    of_response: Arc<Mutex<Vec<HookDecision>>>,
}

/// Outcome event of an [`AuditedDecision`]: written when the exchange, tunnel or session ends.
pub(super) struct Outcome {
    log: AuditLog,
    event: AuditEvent,
    of_response: Arc<Mutex<Vec<HookDecision>>>,
}

impl EndHandler for Outcome {
    fn ended(self: Box<Self>, how: &Ended) {
        let Self { log, mut event, of_response } = *self;
        let server_key = how.server_key.map(|key| key.0.to_string());
        let details = &mut event.details;
        details["credentials_removed"] = how.removed.into();
        details["bytes_from_client"] = how.octets_up.into();
        details["bytes_to_client"] = how.octets_down.into();
        details["complete"] = how.is_complete.into();
        // Rounded: the hash covers the JSON text, and JSON parsers may read a fraction as different values.
        details["duration_ms"] = (how.duration_ms.round() as u64).into();
        set_hooks(details, &of_response.lock());
        details["reason"] = how.reason.into();
        details["server_key_sha256"] = server_key.into();
        details["status"] = how.status.into();
        log.note(event);
    }
}

impl AuditedDecision {
    /// Creates the decision event of a request that arrived on the connection `context`.
    pub(super) fn request<B>(
        request: &Request<B>,
        context: &ConnectionContext,
        judgement: Option<&Judgement>,
    ) -> Self {
        let name = context.origin.server.as_ref().unwrap_or(&context.origin.target.name);
        let audited = Self::of("request", &context.client, name, context.origin.target.port, judgement);
        let mut audited = audited.of_object(request.method().as_str(), request.uri().path());
        // A replay: a person, not the client, sent this request.
        if let Some(replay) = request.extensions().get::<Replay>() {
            audited.event.details["replayed_by"] = (*replay.by).into();
        }
        audited
    }

    pub(super) fn of_object(mut self, method: &str, path: &str) -> Self {
        let details = &mut self.event.details;
        details["method"] = cut(method, METHOD_BYTES_MAX).into();
        details["path"] = cut(path, PATH_BYTES_MAX).into();
        self
    }

    /// Creates the decision event of a connection to `target` for the host `name`. `kind` is the event kind: `tunnel`, `session`
    /// (of a database) or `connection` (refused).
    pub(super) fn connection(
        kind: &'static str,
        client: &Client,
        (target, name): (&Target, &HostOrIp),
        judgement: Option<&Judgement>,
    ) -> Self {
        Self::of(kind, client, name, target.port, judgement)
    }

    fn of(
        kind: &'static str,
        client: &Client,
        name: &HostOrIp,
        port: u16,
        judgement: Option<&Judgement>,
    ) -> Self {
        let actor = actor_of(judgement.and_then(|judgement| judgement.identity.as_deref()), client);
        let decision = judgement.map_or("allow", |judgement| judgement.decision);
        let id: Arc<str> = Uuid::now_v7().to_string().into();
        // Members are sorted, because the hash covers them in this order.
        let details = json!({
            "client": client.ip(),
            "credentials": [],
            "method": null,
            "path": null,
            "reason": null,
            "request": &*id,
            "rule": judgement.and_then(|judgement| judgement.policy_rule.as_deref()),
            "sent": false,
            "user": client.user.as_deref(),
        });
        let (action, resource) = (format!("proxy.{kind}.{decision}"), format!("{name}:{port}"));
        Self { event: AuditEvent { actor, action, resource, details }, id, of_response: Arc::default() }
    }

    pub(super) fn with_hooks(mut self, decisions: &[HookDecision]) -> Self {
        set_hooks(&mut self.event.details, decisions);
        self
    }

    /// Stores the decisions of hooks about the response, for the event of the outcome.
    pub(super) fn note_response_hooks(&self, decisions: Vec<HookDecision>) {
        self.of_response.lock().extend(decisions);
    }

    /// Marks this decision as a decision about a held request: adds the ID of the hold, and the name of the person who decided.
    pub(super) fn with_hold(mut self, record: Option<&HoldRecord>) -> Self {
        let Some(record) = record else { return self };
        let details = &mut self.event.details;
        details["hold"] = (*record.hold).into();
        if let Some(by) = &record.by {
            details["decided_by"] = (**by).into();
        }
        if let Some(request) = &record.request {
            details["request"] = (**request).into();
            self.id = Arc::clone(request);
        }
        self
    }

    /// Returns the ID that all events of the request share.
    pub(super) fn id(&self) -> Arc<str> {
        Arc::clone(&self.id)
    }

    /// Returns the event of a refusal, with the same event kind as this decision.
    pub(super) fn denied(&self, reason: &'static str) -> AuditEvent {
        let mut event = self.refused(reason);
        if let Some((kind, _)) = event.action.rsplit_once('.') {
            event.action = format!("{kind}.deny");
        }
        event
    }

    /// Returns the outcome event, to be written when the exchange ends.
    pub(super) fn outcome(&self, log: &AuditLog) -> Box<Outcome> {
        let AuditEvent { actor, action, resource, .. } = self.event.clone();
        let (kind, _) = action.rsplit_once('.').unwrap_or((&action, ""));
        let (action, details) = (format!("{kind}.outcome"), json!({ "request": &*self.id }));
        let event = AuditEvent { actor, action, resource, details };
        Box::new(Outcome { log: log.clone(), event, of_response: Arc::clone(&self.of_response) })
    }

    /// Returns the event of a permitted request, with the names and versions of its injected `credentials`.
    pub(super) fn sent(&self, credentials: &[Injected]) -> AuditEvent {
        let mut event = self.event.clone();
        event.details["sent"] = true.into();
        event.details["credentials"] =
            credentials.iter().map(|one| json!({ "name": &*one.name(), "version": one.version() })).collect();
        event
    }

    /// Returns the event of a request that the policy permits but the proxy does not send.
    pub(super) fn unsent(&self) -> AuditEvent {
        self.event.clone()
    }

    pub(super) fn refused(&self, reason: &'static str) -> AuditEvent {
        let mut event = self.event.clone();
        event.details["reason"] = reason.into();
        event
    }
}

/// Adds the decisions of hooks to `details`, unless `decisions` is empty.
fn set_hooks(details: &mut serde_json::Value, decisions: &[HookDecision]) {
    if !decisions.is_empty() {
        details["hooks"] = json!(decisions);
    }
}

/// Returns the actor of an event: the client's identity, else its user, else its address.
pub(super) fn actor_of(identity: Option<&str>, client: &Client) -> String {
    match (identity, &client.user) {
        (Some(identity), _) => format!("identity:{identity}"),
        (None, Some(user)) => format!("user:{user}"),
        (None, None) => format!("address:{}", client.ip()),
    }
}

/// Returns the response to a request whose audit event cannot be written.
pub(super) fn audit_failure_response(error: AuditWriteError) -> Response<Body> {
    let detail = format!("{error}; the request was not sent");
    page::problem(StatusCode::SERVICE_UNAVAILABLE, "proxy_internal_error", &detail)
}

pub(super) fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
