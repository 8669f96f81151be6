//! A line of the access log.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::header::HeaderMap;
use jiff::Timestamp;
use serde::Serialize;
use x509::HostOrIp;

use super::super::client::Client;

/// Maximum bytes of a path in a log line.
pub const PATH_BYTES_MAX: usize = 2_048;

/// The decision of a policy about a request.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Judgement {
    /// Identity of the client in the policy, if it has one.
    pub identity: Option<Arc<str>>,
    /// Decision of the policy: `allow`, `deny`, `log` or `hold`.
    pub decision: &'static str,
    /// The policy rule that matched; `None` if the default applied.
    pub policy_rule: Option<Arc<str>>,
}

/// The verified destination of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Destination {
    /// The host, never an unverified claim of the client.
    pub host: HostOrIp,
    /// TCP port of the host.
    pub port: u16,
    /// Whether the proxy connects to the host by TLS; `None` for a tunnel, whose bytes the proxy does not read.
    pub is_tls: Option<bool>,
}

/// Data of a request that a replay of the request needs.
#[derive(Clone, Debug)]
pub struct Original {
    /// Client that sent the request.
    pub client: Client,
    /// Reason why the request cannot be sent again from its log line; `None` if it can.
    pub incomplete: Option<&'static str>,
    /// The replay that sent this request; `None` if a client sent it.
    pub replay: Option<Replay>,
}

/// Mark of a replayed request, in the extensions of the request.
#[derive(Clone, Debug)]
pub struct Replay {
    /// ID of the request that is replayed.
    pub of: u64,
    /// Actor that replays the request, such as `user:ann`.
    pub by: Arc<str>,
}

/// Observer of requests while their responses are sent. The line includes the query of the URL only if the access log does.
pub trait Observer: Send + Sync {
    /// Returns a new ID for a request.
    fn next_id(&self) -> u64;

    /// Observes a request whose response began, or whose exchange ended. A request is observed at least once, at its end.
    fn observed(&self, id: u64, line: &Line, is_ended: bool);
}

/// A line of the access log.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Arrival time of the request.
    pub time: Timestamp,
    /// IP address of the client.
    pub client: IpAddr,
    /// Name of the authenticated user (by password, token or certificate).
    pub user: Option<Arc<str>>,
    /// Method; `CONNECT` for a tunnel.
    pub method: String,
    /// The host in the client's request, with its port if given.
    pub host: String,
    /// Server name in the ClientHello of a tunnel, if it differs from `host`.
    pub server_name: Option<String>,
    /// Path, truncated to the limit; with the query if the log has queries.
    pub path: String,
    /// Status of the response; `None` if the client closed the connection before there was one.
    pub status: Option<u16>,
    /// Reason why the request was rejected, if it was.
    pub reason: Option<&'static str>,
    /// Bytes from the client: of the request's body, or of a tunnel.
    pub octets_up: u64,
    /// Bytes to the client: of the response's body, or of a tunnel.
    pub octets_down: u64,
    /// Milliseconds since the request arrived; 0 until it ends.
    pub duration_ms: f64,
    /// `kept` (from the pool) or `new`; `None` if the proxy generated the response.
    pub upstream: Option<&'static str>,
    /// Server of the upstream, `HOST:PORT`, if the upstream may have several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_server: Option<Arc<str>>,
    /// Names of the rules that the request or its response matched.
    pub rules: Vec<Arc<str>>,
    /// Decision of the policy, if a policy is configured.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub judgement: Option<Judgement>,
    /// Names of credentials that were injected, never their values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<Arc<str>>,
    /// Trace ID from `traceparent` (W3C Trace Context).
    pub trace_id: Option<String>,
    /// The verified destination, which only an [`Observer`] gets.
    #[serde(skip)]
    pub destination: Option<Destination>,
    /// Data for a replay of the request, which only an [`Observer`] gets.
    #[serde(skip)]
    pub original: Option<Original>,
}

impl Line {
    /// Writes the line to the process's log, if enabled (`--log access=info`).
    pub(super) fn write_to_log(&self) {
        tracing::info!(
            target: "access",
            client = %self.client,
            user = self.user.as_deref(),
            method = self.method,
            host = self.host,
            server_name = self.server_name,
            path = self.path,
            status = self.status,
            reason = self.reason,
            octets_up = self.octets_up,
            octets_down = self.octets_down,
            duration_ms = self.duration_ms,
            upstream = self.upstream,
            upstream_server = self.upstream_server.as_deref(),
            rules = ?self.rules,
            identity = self.judgement.as_ref().and_then(|judgement| judgement.identity.as_deref()),
            decision = self.judgement.as_ref().map(|judgement| judgement.decision),
            policy_rule = self.judgement.as_ref().and_then(|judgement| judgement.policy_rule.as_deref()),
            credentials = (!self.credentials.is_empty()).then(|| tracing::field::debug(&self.credentials)),
            trace_id = self.trace_id,
            "request"
        );
    }
}

/// Whether access log lines contain the query of the URL.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LoggedQuery {
    /// Only the path: queries may contain secrets.
    #[default]
    Omitted,
    /// Path and whole query, which may contain secrets.
    Whole,
}

/// Returns the path for a log line, truncated to the limit.
pub(super) fn path_of(uri: &hyper::Uri, query: LoggedQuery) -> String {
    let whole = match uri.path_and_query() {
        Some(whole) if query == LoggedQuery::Whole => whole.as_str(),
        _ => uri.path(),
    };
    whole.chars().take(PATH_BYTES_MAX).collect()
}

pub(super) fn trace_id_of(headers: &HeaderMap) -> Option<String> {
    let id = headers.get("traceparent")?.to_str().ok()?.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_owned())
}
