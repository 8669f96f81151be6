//! The end of a hold, and the response to a request whose hold ended without an approval.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;

use super::gateway::Refused;
use super::holds::{Answer, TooManyHeld};
use super::policy_page::PolicyRefusal;

/// Reason in logs if the client of a held request disconnected.
pub(super) const CLIENT_GONE: &str = "hold-client-gone";
const REJECTED: &str = "A person rejected the request";
const NOT_AGAIN: &str =
    "Nothing was sent. Do not send the same request again, unless the operator of this proxy agrees.";
/// `Retry-After` in responses to clients when too many requests are held.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Reason why a hold ended.
#[derive(Debug)]
pub(super) enum HoldEnd {
    Answered(Answer),
    /// The deadline passed without a decision.
    Deadline,
    /// The client closed its connection.
    ClientDisconnected,
    /// The proxy is shutting down.
    Stopping,
    /// The limit of held requests is reached.
    TooMany(TooManyHeld),
    /// Holds are not configured for this proxy, so that no approval is possible.
    Unavailable,
    /// The hold cannot be written to the audit log.
    NotAudited,
}

impl HoldEnd {
    /// Returns the label value of this end in metrics.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Answered(Answer::Approved { .. }) => "approved",
            Self::Answered(Answer::Rejected { .. }) => "rejected",
            Self::Deadline => "deadline",
            Self::ClientDisconnected => "client-gone",
            Self::Stopping => "stopped",
            Self::TooMany(_) => "limit",
            Self::Unavailable => "unavailable",
            Self::NotAudited => "not-audited",
        }
    }

    /// Returns the reason for logs and responses.
    const fn reason(&self) -> &'static str {
        match self {
            Self::Answered(_) => "hold-rejected",
            Self::Deadline => "hold-deadline",
            Self::ClientDisconnected => CLIENT_GONE,
            Self::Stopping => "hold-stopped",
            Self::TooMany(_) => "hold-limit",
            Self::Unavailable => "hold-unavailable",
            Self::NotAudited => "audit-log",
        }
    }

    /// Returns the person who approved or rejected the request; `None` if the hold ended without a decision.
    pub(super) fn by(&self) -> Option<Arc<str>> {
        match self {
            Self::Answered(Answer::Approved { by } | Answer::Rejected { by, .. }) => Some(Arc::clone(by)),
            _ => None,
        }
    }
}

impl Refused {
    /// Sets the status and the texts of the refusal, after a hold that ended without an approval.
    pub(super) fn after(&mut self, end: &HoldEnd, hold_for: Duration) {
        let (page, seconds) = (&mut self.page, hold_for.as_secs());
        let rule = page.rule.as_deref().unwrap_or_default().to_owned();
        let owner = match &page.identity {
            Some(identity) => format!("identity {identity}"),
            None => "a client without an identity".into(),
        };
        let PolicyRefusal { method, path, host, .. } = &*page;
        let summary = format!("rule {rule} of the policy held {method} {path} on {host} of {owner}");
        let (status, title, detail, advice) = match end {
            HoldEnd::Answered(Answer::Rejected { reason: Some(reason), .. }) => (
                StatusCode::FORBIDDEN,
                REJECTED,
                format!("{summary}, and a person rejected it: {reason}"),
                NOT_AGAIN,
            ),
            HoldEnd::Answered(_) => {
                (StatusCode::FORBIDDEN, REJECTED, format!("{summary}, and a person rejected it"), NOT_AGAIN)
            }
            HoldEnd::Deadline => (
                StatusCode::FORBIDDEN,
                "The request was held, and was not approved in time",
                format!("{summary} for {seconds} s, and it was not approved in time"),
                "Nothing was sent. Ask the operator of this proxy to approve the request (`bulla proxy held`, `bulla proxy \
                 approve`), and send it again.",
            ),
            HoldEnd::ClientDisconnected => (
                StatusCode::FORBIDDEN,
                "The request was held, and its client closed the connection",
                format!("{summary}, and its client closed the connection"),
                "Nothing was sent.",
            ),
            HoldEnd::Stopping => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The proxy stops, and the request was still held",
                format!("{summary}, and the proxy stops"),
                "Nothing was sent. Send the request again when the proxy runs.",
            ),
            HoldEnd::TooMany(limit) => (
                StatusCode::TOO_MANY_REQUESTS,
                "Too many requests are held",
                format!("rule {rule} of the policy holds {method} {path} on {host} of {owner}, but {limit}"),
                "Nothing was sent. Retry when some of the held requests are decided.",
            ),
            HoldEnd::Unavailable => (
                StatusCode::FORBIDDEN,
                "The request needs an approval",
                format!(
                    "rule {rule} of the policy holds {method} {path} on {host} of {owner}, but this proxy has no way to \
                     approve requests"
                ),
                "Nothing was sent. Approvals need `bulla proxy` with proxy.control_socket; `bulla run` uses it with --proxy.",
            ),
            HoldEnd::NotAudited => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The audit log cannot be written",
                format!("{summary}, but the audit log of the proxy cannot be written"),
                "Nothing was sent. Ask the operator of this proxy to check its audit log, and send the request again.",
            ),
        };
        page.retry_after = matches!(end, HoldEnd::TooMany(_)).then_some(RETRY_AFTER);
        (page.status, page.title, page.detail, page.advice) =
            (status.as_u16(), title, detail, advice.to_owned());
        page.reason = end.reason();
    }
}
