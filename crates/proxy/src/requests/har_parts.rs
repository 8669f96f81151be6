//! The parts of HAR 1.2 that recordings and exports of recent requests share.

use hyper::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Returns the `creator` member of a HAR log: this program and its version.
pub(super) fn creator() -> Value {
    json!({ "name": "bulla", "version": env!("CARGO_PKG_VERSION") })
}

/// Returns a log with these entries, and a comment about them.
pub(crate) fn log_of(entries: &[Value], comment: &str) -> Value {
    json!({ "log": { "version": "1.2", "creator": creator(), "entries": entries, "comment": comment } })
}

/// The request of a HAR entry.
pub(crate) struct RequestPart<'a> {
    pub(crate) method: &'a str,
    pub(crate) url: &'a str,
    /// The HTTP version; empty if it is unknown.
    pub(crate) version: &'a str,
    /// Bytes of the body.
    pub(crate) bytes: u64,
}

impl RequestPart<'_> {
    pub(crate) fn json(&self, headers: &Value, query: &Value) -> Value {
        json!({
            "method": self.method, "url": self.url, "httpVersion": self.version, "cookies": [],
            "headers": headers, "queryString": query, "headersSize": -1, "bodySize": self.bytes,
        })
    }
}

/// The response of a HAR entry.
pub(crate) struct ResponsePart<'a> {
    /// The status; `None` without a response.
    pub(crate) status: Option<StatusCode>,
    /// The HTTP version; empty if it is unknown.
    pub(crate) version: &'a str,
    /// Bytes of the body.
    pub(crate) bytes: u64,
}

impl ResponsePart<'_> {
    pub(crate) fn json(&self, headers: &Value, content: &Value, redirect: &str) -> Value {
        json!({
            "status": self.status.map_or(0, |status| status.as_u16()),
            "statusText": self.status.and_then(|status| status.canonical_reason()).unwrap_or_default(),
            "httpVersion": self.version, "cookies": [], "headers": headers,
            "content": content, "redirectURL": redirect, "headersSize": -1, "bodySize": self.bytes,
        })
    }
}

/// Returns an entry. `timings`: milliseconds from the request to the start of the response, and from there to the end of the
/// response.
pub(crate) fn entry_of(began: Timestamp, timings: (f64, f64), request: Value, response: Value) -> Value {
    let (wait, receive) = timings;
    json!({
        "startedDateTime": began.to_string(),
        "time": wait + receive,
        "request": request,
        "response": response,
        "cache": {},
        "timings": { "send": 0, "wait": wait, "receive": receive },
    })
}
