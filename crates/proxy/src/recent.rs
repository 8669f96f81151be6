//! The most recent requests of the proxy, kept in memory for display to operators.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http_relay::access_log::{Line, Observer, Original, Replay};
use hyper::StatusCode;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use crate::holds::{AllowedRequest, NoRule};
use crate::policy::PolicyRuleText;
use crate::requests::har_parts::{RequestPart, ResponsePart, entry_of, log_of};

/// Maximum requests that are kept. The oldest request is removed first.
pub const RECENT_MAX: usize = 1_000;
/// Maximum bytes of a path that is kept.
const PATH_BYTES_MAX: usize = 2_048;

/// A request whose response has begun or ended. Contains no query, no header and no body.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecentRequest {
    /// Number of the request since the proxy started.
    pub id: u64,
    /// Arrival time of the request.
    pub time: Timestamp,
    /// IP address of the client.
    pub client: IpAddr,
    /// Name of the authenticated user.
    pub user: Option<Arc<str>>,
    /// Identity of the client, if the policy has one for it.
    pub identity: Option<Arc<str>>,
    /// Method; `CONNECT` for a tunnel or a refused connection.
    pub method: String,
    /// `https` or `http`; `None` for a tunnel, and before the host is verified.
    pub scheme: Option<&'static str>,
    /// Verified host; before the verification, the host in the request.
    pub host: String,
    /// Port of the verified host.
    pub port: Option<u16>,
    /// Path without query.
    pub path: String,
    /// Decision of the policy; `None` without a policy.
    pub decision: Option<&'static str>,
    /// Name of the policy rule that decided, if one did.
    pub policy_rule: Option<Arc<str>>,
    /// Reason of a refusal; `None` if the request was not refused.
    pub reason: Option<&'static str>,
    /// Names of the rules on requests that apply.
    pub rules: Vec<Arc<str>>,
    /// Names of the injected credentials, never their values.
    pub credentials: Vec<Arc<str>>,
    /// HTTP status of the response, if there was one.
    pub status: Option<u16>,
    /// Bytes from the client: of the request's body, or of a tunnel.
    pub bytes_from_client: u64,
    /// Bytes to the client: of the response's body, or of a tunnel.
    pub bytes_to_client: u64,
    /// Milliseconds since the arrival; `None` until the exchange ends.
    pub duration_ms: Option<u64>,
    /// Number of the request that this request replays; `None` if this request is not a replay.
    pub replay_of: Option<u64>,
    /// Name of the person who replayed the request; `None` if this request is not a replay.
    pub replayed_by: Option<Arc<str>>,
}

/// A filter for recent requests. A request must meet all conditions.
#[derive(Clone, Debug, Default)]
pub struct RecentFilter {
    /// Name of an identity or user, or address of a client; empty: all.
    pub identity: String,
    /// Text that the host contains; empty: all.
    pub host: String,
    /// Whether to return only refused requests.
    pub denied: bool,
}

/// The last [`RECENT_MAX`] requests of a proxy. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RecentRequests(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    next: AtomicU64,
    /// Ordered by the start of their responses.
    requests: Mutex<VecDeque<StoredRequest>>,
}

#[derive(Clone, Debug)]
struct StoredRequest {
    request: RecentRequest,
    /// `None` for a tunnel, and for a connection without a request.
    original: Option<Original>,
}

impl RecentRequests {
    /// Returns up to `limit` requests that match `filter`, newest first.
    #[must_use]
    pub fn list(&self, filter: &RecentFilter, limit: usize) -> Vec<RecentRequest> {
        let requests = self.0.requests.lock();
        let all = requests.iter().rev().map(|stored| &stored.request);
        all.filter(|one| filter.matches(one)).take(limit).cloned().collect()
    }

    /// Returns the request with this number, if it is still kept.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<RecentRequest> {
        self.find(|stored| stored.request.id == id).map(|stored| stored.request)
    }

    /// Returns the request with this number, and the data that a replay of this request needs. These data are `None` for a tunnel,
    /// and for a connection without a request.
    pub(crate) fn original(&self, id: u64) -> Option<(RecentRequest, Option<Original>)> {
        self.find(|stored| stored.request.id == id).map(|stored| (stored.request, stored.original))
    }

    /// Returns the request that `replay` sent; `None` if its response has not begun.
    pub(crate) fn replayed(&self, replay: &Replay) -> Option<RecentRequest> {
        let is_it = |by: &Arc<str>| Arc::ptr_eq(by, &replay.by);
        self.find(|stored| stored.request.replayed_by.as_ref().is_some_and(is_it))
            .map(|stored| stored.request)
    }

    fn find(&self, is_wanted: impl Fn(&StoredRequest) -> bool) -> Option<StoredRequest> {
        self.0.requests.lock().iter().rev().find(|stored| is_wanted(stored)).cloned()
    }
}

impl Observer for RecentRequests {
    fn next_id(&self) -> u64 {
        self.0.next.fetch_add(1, Relaxed) + 1
    }

    fn observed(&self, id: u64, line: &Line, is_ended: bool) {
        let (request, original) = (RecentRequest::of(id, line, is_ended), line.original.clone());
        let stored = StoredRequest { request, original };
        let mut requests = self.0.requests.lock();
        if let Some(known) = requests.iter_mut().rev().find(|one| one.request.id == id) {
            *known = stored;
            return;
        }
        let oldest = if requests.len() >= RECENT_MAX { requests.pop_front() } else { None };
        requests.push_back(stored);
        drop(requests);
        // Freed outside of the lock.
        drop(oldest);
    }
}

impl RecentRequest {
    fn of(id: u64, line: &Line, is_ended: bool) -> Self {
        let judgement = line.judgement.as_ref();
        let destination = line.destination.as_ref();
        let replay = line.original.as_ref().and_then(|original| original.replay.as_ref());
        // The path in the access log may include the query.
        let path = line.path.split('?').next().unwrap_or_default();
        Self {
            id,
            time: line.time,
            client: line.client,
            user: line.user.clone(),
            identity: judgement.and_then(|judgement| judgement.identity.clone()),
            method: line.method.clone(),
            scheme: destination.and_then(|at| at.is_tls).map(|is_tls| if is_tls { "https" } else { "http" }),
            host: destination.map_or_else(|| line.host.clone(), |at| at.host.to_string()),
            port: destination.map(|at| at.port),
            path: path[..path.floor_char_boundary(PATH_BYTES_MAX)].to_owned(),
            decision: judgement.map(|judgement| judgement.decision),
            policy_rule: judgement.and_then(|judgement| judgement.policy_rule.clone()),
            reason: line.reason,
            rules: line.rules.clone(),
            credentials: line.credentials.clone(),
            status: line.status,
            bytes_from_client: line.octets_up,
            bytes_to_client: line.octets_down,
            duration_ms: is_ended.then(|| line.duration_ms.round() as u64),
            replay_of: replay.map(|replay| replay.of),
            replayed_by: replay.map(|replay| Arc::clone(&replay.by)),
        }
    }

    /// Returns whether the proxy refused the request.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.decision == Some("deny") || self.reason.is_some()
    }

    /// Returns a rule of the policy that allows this request: for its identity, host, port, method and path. `None` without a policy.
    ///
    /// # Errors
    /// [`NoRule`]
    pub fn allowing_rule(&self) -> Option<Result<PolicyRuleText, NoRule>> {
        let port = self.port.filter(|_| self.decision.is_some())?;
        let name = format!("allow-{}", self.id);
        let identity = self.identity.as_deref();
        let request =
            AllowedRequest { identity, host: &self.host, port, method: &self.method, path: &self.path };
        Some(request.rule(name))
    }
}

/// Comment in an exported HAR log.
const EXPORTED: &str =
    "the proxy keeps no query, header and body of recent requests: a rule with record = true records them";

/// Returns the requests that have ended as a HAR 1.2 log, in the given order.
#[must_use]
pub fn har_of(requests: &[RecentRequest]) -> Value {
    let entries: Vec<Value> = requests.iter().filter_map(RecentRequest::har_entry).collect();
    log_of(&entries, EXPORTED)
}

impl RecentRequest {
    /// Returns the request as a HAR entry; `None` until it has ended. Members with `_` are our own, as HAR 1.2 allows.
    fn har_entry(&self) -> Option<Value> {
        let duration_ms = self.duration_ms?;
        let none = json!([]);
        let url = self.url();
        let request =
            RequestPart { method: &self.method, url: &url, version: "", bytes: self.bytes_from_client };
        let status = self.status.and_then(|status| StatusCode::from_u16(status).ok());
        let response = ResponsePart { status, version: "", bytes: self.bytes_to_client };
        let content = json!({ "size": self.bytes_to_client, "mimeType": "" });
        let (request, response) = (request.json(&none, &none), response.json(&none, &content, ""));
        let mut entry = entry_of(self.time, (duration_ms as f64, 0.0), request, response);
        for (name, value) in [
            ("_rules", json!(self.rules)),
            ("_identity", json!(self.identity)),
            ("_decision", json!(self.decision)),
            ("_policy_rule", json!(self.policy_rule)),
            ("_reason", json!(self.reason)),
            ("_credentials", json!(self.credentials)),
            ("_replayed_by", json!(self.replayed_by)),
        ] {
            entry[name] = value;
        }
        Some(entry)
    }

    /// Returns the URL without query. A tunnel has the scheme `https`, because HAR needs one.
    pub(crate) fn url(&self) -> String {
        let scheme = self.scheme.unwrap_or("https");
        // If `port` is absent, the host is not verified yet and includes its port.
        let is_ipv6 = self.port.is_some() && self.host.contains(':');
        let host = if is_ipv6 { format!("[{}]", self.host) } else { self.host.clone() };
        let path = if self.path.starts_with('/') { self.path.as_str() } else { "/" };
        match (scheme, self.port) {
            (_, None) | ("https", Some(443)) | ("http", Some(80)) => format!("{scheme}://{host}{path}"),
            (_, Some(port)) => format!("{scheme}://{host}:{port}{path}"),
        }
    }
}

impl RecentFilter {
    fn matches(&self, request: &RecentRequest) -> bool {
        let wanted = self.identity.as_str();
        let is_name = |name: &Option<Arc<str>>| name.as_deref() == Some(wanted);
        (wanted.is_empty()
            || is_name(&request.identity)
            || is_name(&request.user)
            || wanted.parse() == Ok(request.client))
            && request.host.contains(&self.host)
            && (!self.denied || request.is_denied())
    }
}

#[cfg(test)]
mod tests {
    use http_relay::access_log::{Destination, Judgement};
    use x509::HostOrIp;

    use super::*;

    fn line(path: &str, decision: &'static str) -> Line {
        Line {
            time: Timestamp::UNIX_EPOCH,
            client: [192, 0, 2, 1].into(),
            user: None,
            method: "GET".into(),
            host: "a.example".into(),
            server_name: None,
            path: path.into(),
            status: Some(200),
            reason: None,
            octets_up: 1,
            octets_down: 2,
            duration_ms: 3.4,
            upstream: None,
            upstream_server: None,
            rules: Vec::new(),
            judgement: Some(Judgement { identity: Some("ci".into()), decision, policy_rule: None }),
            credentials: Vec::new(),
            trace_id: None,
            destination: Some(Destination {
                host: HostOrIp::parse("a.example").unwrap(),
                port: 443,
                is_tls: Some(true),
            }),
            original: None,
        }
    }

    #[test]
    fn recent_requests_are_bounded_and_updated_at_their_end() {
        let recent = RecentRequests::default();
        let first = recent.next_id();
        recent.observed(first, &line("/a?token=secret", "allow"), false);
        let running = recent.get(first).unwrap();
        assert_eq!((running.path.as_str(), running.duration_ms), ("/a", None), "the query is left out");
        recent.observed(first, &line("/a?token=secret", "allow"), true);
        let all = recent.list(&RecentFilter::default(), 10);
        assert_eq!((all.len(), all[0].duration_ms), (1, Some(3)));
        for _ in 0..RECENT_MAX {
            recent.observed(recent.next_id(), &line("/b", "deny"), true);
        }
        assert_eq!(recent.list(&RecentFilter::default(), usize::MAX).len(), RECENT_MAX);
        assert_eq!(recent.get(first), None, "the oldest is forgotten");
    }

    #[test]
    fn filter_selects_by_identity_host_and_refusal() {
        let recent = RecentRequests::default();
        for (path, decision) in [("/allowed", "allow"), ("/denied", "deny")] {
            recent.observed(recent.next_id(), &line(path, decision), true);
        }
        let paths = |identity: &str, host: &str, denied| {
            let filter = RecentFilter { identity: identity.into(), host: host.into(), denied };
            recent.list(&filter, 10).into_iter().map(|one| one.path).collect::<Vec<_>>()
        };
        assert_eq!(paths("", "", false), ["/denied", "/allowed"]);
        assert_eq!(paths("ci", "example", true), ["/denied"]);
        assert_eq!(paths("192.0.2.1", "", true), ["/denied"]);
        assert!(paths("other", "", false).is_empty() && paths("", "b.example", false).is_empty());
    }

    #[test]
    fn exported_har_has_ended_requests_without_their_query() {
        let recent = RecentRequests::default();
        recent.observed(
            1,
            &Line { credentials: vec!["/shop/api".into()], ..line("/a/b?token=secret", "allow") },
            true,
        );
        recent.observed(2, &line("/running", "allow"), false);
        let har = har_of(&recent.list(&RecentFilter::default(), 10));
        let entries = har["log"]["entries"].as_array().unwrap();
        assert_eq!((har["log"]["version"].as_str(), entries.len()), (Some("1.2"), 1), "{har}");
        let entry = &entries[0];
        assert_eq!(entry["startedDateTime"], "1970-01-01T00:00:00Z");
        assert_eq!((entry["time"].as_f64(), entry["timings"]["wait"].as_f64()), (Some(3.0), Some(3.0)));
        assert_eq!(
            (&entry["request"]["method"], &entry["request"]["url"]),
            (&json!("GET"), &json!("https://a.example/a/b"))
        );
        assert_eq!(
            (&entry["response"]["status"], &entry["response"]["statusText"]),
            (&json!(200), &json!("OK"))
        );
        assert_eq!(
            (&entry["request"]["bodySize"], &entry["response"]["content"]["size"]),
            (&json!(1), &json!(2))
        );
        assert_eq!((&entry["_identity"], &entry["_credentials"]), (&json!("ci"), &json!(["/shop/api"])));
        assert!(!har.to_string().contains("secret"), "{har}");
    }

    #[test]
    fn url_has_the_port_unless_it_is_the_default_of_its_scheme() {
        let recent = RecentRequests::default();
        recent.observed(1, &line("/x", "allow"), true);
        let one = recent.get(1).unwrap();
        for (scheme, host, port, path, url) in [
            (Some("https"), "a.example", Some(443), "/x", "https://a.example/x"),
            (Some("https"), "a.example", Some(8443), "/x", "https://a.example:8443/x"),
            (Some("http"), "a.example", Some(80), "/x", "http://a.example/x"),
            (Some("http"), "::1", Some(8080), "/x", "http://[::1]:8080/x"),
            (None, "a.example", Some(22), "", "https://a.example:22/"),
            (None, "a.example:8443", None, "", "https://a.example:8443/"),
        ] {
            let one = RecentRequest { scheme, host: host.into(), port, path: path.into(), ..one.clone() };
            assert_eq!(one.url(), url);
        }
    }

    #[test]
    fn allowing_rule_names_exactly_the_request() {
        let recent = RecentRequests::default();
        recent.observed(1, &line("/x/%41?q=1", "deny"), true);
        let rule = recent.get(1).unwrap().allowing_rule().unwrap().unwrap();
        assert_eq!(
            (rule.host, rule.method, rule.path, rule.identities),
            (vec!["a.example".to_owned()], vec!["GET".into()], vec!["/x/A".into()], vec!["ci".into()])
        );
        recent.observed(2, &Line { judgement: None, ..line("/x", "deny") }, true);
        assert_eq!(recent.get(2).unwrap().allowing_rule(), None, "there is no policy");
    }
}
