//! Events of the audit log: the decision about a request or a connection, and the credentials that it gets.

use http_relay::access_log::Judgement;
use http_relay::client::Client;
use http_relay::page::{self, Body};
use http_relay::target::Target;
use hyper::{Request, Response, StatusCode};
use serde_json::json;
use x509::HostOrIp;

use super::connection_context::ConnectionContext;
use super::requests::{AuditEvent, Injected, NotAudited};

/// Bytes of a path in an event.
const PATH_OCTETS_MAX: usize = 2_048;
/// Bytes of a method in an event.
const METHOD_OCTETS_MAX: usize = 32;

/// A decision that is audited before anything comes of it.
#[derive(Clone, Debug)]
pub(super) struct Audited {
    event: AuditEvent,
}

impl Audited {
    /// The request that `way` has brought.
    pub(super) fn request<B>(
        request: &Request<B>,
        way: &ConnectionContext,
        judgement: Option<&Judgement>,
    ) -> Self {
        let name = way.origin.server.as_ref().unwrap_or(&way.origin.target.name);
        let mut audited = Self::of("request", &way.client, name, way.origin.target.port, judgement);
        let details = &mut audited.event.details;
        details["method"] = cut(request.method().as_str(), METHOD_OCTETS_MAX).into();
        details["path"] = cut(request.uri().path(), PATH_OCTETS_MAX).into();
        audited
    }

    /// A connection to `target` that asks for `name`, which passes through (`tunnel`) or is refused (`connection`).
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
        let identity = judgement.and_then(|judgement| judgement.identity.as_ref());
        let actor = match (identity, &client.user) {
            (Some(identity), _) => format!("identity:{identity}"),
            (None, Some(user)) => format!("user:{user}"),
            (None, None) => format!("address:{}", client.ip()),
        };
        let decision = judgement.map_or("allow", |judgement| judgement.decision);
        // Members are sorted, as the hash covers them so.
        let details = json!({
            "client": client.ip(),
            "credentials": [],
            "method": null,
            "path": null,
            "reason": null,
            "rule": judgement.and_then(|judgement| judgement.policy_rule.as_deref()),
            "sent": false,
            "user": client.user.as_deref(),
        });
        let (action, resource) = (format!("proxy.{kind}.{decision}"), format!("{name}:{port}"));
        Self { event: AuditEvent { actor, action, resource, details } }
    }

    /// The event of a decision that sends something, with these credentials.
    pub(super) fn sent(&self, credentials: &[Injected]) -> AuditEvent {
        let mut event = self.event.clone();
        event.details["sent"] = true.into();
        event.details["credentials"] = credentials.iter().map(|one| one.name().to_string()).collect();
        event
    }

    /// The event of a decision of which nothing comes.
    pub(super) fn unsent(&self) -> AuditEvent {
        self.event.clone()
    }

    /// The event of a refusal.
    pub(super) fn refused(&self, reason: &'static str) -> AuditEvent {
        let mut event = self.event.clone();
        event.details["reason"] = reason.into();
        event
    }
}

/// The answer to a request whose event cannot be written.
pub(super) fn not_audited(error: NotAudited) -> Response<Body> {
    let detail = format!("{error}, so nothing is sent");
    page::problem(StatusCode::SERVICE_UNAVAILABLE, "proxy_internal_error", &detail)
}

fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
