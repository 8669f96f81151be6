//! Error response to a request that the policy denies: what happened, which rule decided, and what to do.

use std::sync::Arc;
use std::time::Duration;

use http_relay::page::{self, Body};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::page::escaped;

/// Maximum characters of each value from the client's request in a response, such as its path.
const SENT_CHARS_MAX: usize = 300;

/// A refusal of a request, sent as an RFC 9457 problem or as HTML.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PolicyRefusal {
    pub(crate) title: &'static str,
    pub(crate) status: u16,
    pub(crate) detail: String,
    /// Advice for the user: how to get the request permitted.
    pub(crate) advice: String,
    pub(crate) reason: &'static str,
    /// Name of the rule that decided, if one did.
    pub(crate) rule: Option<Arc<str>>,
    pub(crate) identity: Option<Arc<str>>,
    pub(crate) host: String,
    pub(crate) method: String,
    pub(crate) path: String,
    /// Id of the held request; `None` if the request was not held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hold: Option<Arc<str>>,
    #[serde(skip)]
    pub(crate) retry_after: Option<Duration>,
}

impl PolicyRefusal {
    /// Returns the response: JSON, or HTML for clients that request HTML.
    pub(crate) fn page(&self, headers: &HeaderMap) -> Response<Body> {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::FORBIDDEN);
        let is_browser = headers
            .get(ACCEPT)
            .is_some_and(|accept| accept.as_bytes().windows(9).any(|some| some == b"text/html"));
        let (kind, body) = match is_browser {
            true => ("text/html; charset=utf-8", self.html()),
            false => ("application/problem+json", serde_json::to_string(self).unwrap_or_default() + "\n"),
        };
        let mut response = page::problem(status, "http_request_denied", "");
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if let Some(wait) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs_f64().ceil() as u64));
        }
        response.map(|_| http_body_util::Either::Right(body.into()))
    }

    fn html(&self) -> String {
        let row = |name: &str, value: Option<&str>| match value {
            Some(value) => format!("<dt>{name}</dt><dd>{}</dd>", escaped(value)),
            None => String::new(),
        };
        format!(
            "<!DOCTYPE html><html lang=en><meta charset=utf-8><title>{title}</title><h1>{title}</h1><p>{detail}</p><p>{advice}</p><dl>{}{}{}{}{}{}</dl></html>\n",
            row("Host", Some(&self.host)),
            row("Method", Some(&self.method)),
            row("Path", Some(&self.path)),
            row("Identity", self.identity.as_deref()),
            row("Rule", self.rule.as_deref()),
            row("Held request", self.hold.as_deref()),
            title = self.title,
            detail = escaped(&self.detail),
            advice = escaped(&self.advice),
        )
    }
}

/// Returns a text from the client, shortened for display.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(SENT_CHARS_MAX).collect()
}
