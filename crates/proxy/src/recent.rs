//! The most recent requests of the proxy, in memory, for people who watch it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http_relay::access_log::{Line, Observer};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;

use crate::holds::{AllowedRequest, NoRule};
use crate::policy::PolicyRuleText;

/// Maximum requests that are kept. Beyond it, the oldest is forgotten.
pub const RECENT_MAX: usize = 1_000;
/// Maximum bytes of a path that is kept.
const PATH_OCTETS_MAX: usize = 2_048;

/// A request whose response began or ended. Has no query, no header and no body.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecentRequest {
    /// Number of the request since the proxy started.
    pub id: u64,
    /// Arrival of the request.
    pub time: Timestamp,
    /// Address of the client.
    pub client: IpAddr,
    /// Name of the authenticated user.
    pub user: Option<Arc<str>>,
    /// Identity of the client, if the policy has one for it.
    pub identity: Option<Arc<str>>,
    /// Method; `CONNECT` for a tunnel or a refused connection.
    pub method: String,
    /// Verified host; before the verification, the host in the request.
    pub host: String,
    /// Port of the verified host.
    pub port: Option<u16>,
    /// Path without query.
    pub path: String,
    /// Decision of the policy; `None` without a policy.
    pub decision: Option<&'static str>,
    /// The rule of the policy that decided.
    pub policy_rule: Option<Arc<str>>,
    /// Reason of a refusal.
    pub reason: Option<&'static str>,
    /// Names of the rules on requests that apply.
    pub rules: Vec<Arc<str>>,
    /// Names of the injected credentials, never their values.
    pub credentials: Vec<Arc<str>>,
    /// Status of the response.
    pub status: Option<u16>,
    /// Bytes from the client.
    pub bytes_from_client: u64,
    /// Bytes to the client.
    pub bytes_to_client: u64,
    /// Milliseconds since the arrival; `None` until the exchange ends.
    pub duration_ms: Option<u64>,
}

/// Which recent requests are listed.
#[derive(Clone, Debug, Default)]
pub struct RecentFilter {
    /// Name of an identity or user, or address of a client; empty: all.
    pub identity: String,
    /// Text that the host contains; empty: all.
    pub host: String,
    /// Only refused requests.
    pub denied: bool,
}

/// The last [`RECENT_MAX`] requests of a proxy. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RecentRequests(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    next: AtomicU64,
    /// In the order in which their responses began.
    requests: Mutex<VecDeque<RecentRequest>>,
}

impl RecentRequests {
    /// Returns up to `limit` requests that match `filter`, newest first.
    #[must_use]
    pub fn list(&self, filter: &RecentFilter, limit: usize) -> Vec<RecentRequest> {
        let requests = self.0.requests.lock();
        requests.iter().rev().filter(|one| filter.matches(one)).take(limit).cloned().collect()
    }

    /// Returns the request with this number, if it is still kept.
    #[must_use]
    pub fn get(&self, id: u64) -> Option<RecentRequest> {
        self.0.requests.lock().iter().rev().find(|one| one.id == id).cloned()
    }
}

impl Observer for RecentRequests {
    fn next_id(&self) -> u64 {
        self.0.next.fetch_add(1, Relaxed) + 1
    }

    fn observed(&self, id: u64, line: &Line, is_ended: bool) {
        let request = RecentRequest::of(id, line, is_ended);
        let mut requests = self.0.requests.lock();
        if let Some(known) = requests.iter_mut().rev().find(|one| one.id == id) {
            *known = request;
            return;
        }
        let oldest = if requests.len() >= RECENT_MAX { requests.pop_front() } else { None };
        requests.push_back(request);
        drop(requests);
        // Freed outside of the lock.
        drop(oldest);
    }
}

impl RecentRequest {
    fn of(id: u64, line: &Line, is_ended: bool) -> Self {
        let judgement = line.judgement.as_ref();
        let destination = line.destination.as_ref();
        // The access log may have the query.
        let path = line.path.split('?').next().unwrap_or_default();
        Self {
            id,
            time: line.time,
            client: line.client,
            user: line.user.clone(),
            identity: judgement.and_then(|judgement| judgement.identity.clone()),
            method: line.method.clone(),
            host: destination.map_or_else(|| line.host.clone(), |at| at.host.to_string()),
            port: destination.map(|at| at.port),
            path: path[..path.floor_char_boundary(PATH_OCTETS_MAX)].to_owned(),
            decision: judgement.map(|judgement| judgement.decision),
            policy_rule: judgement.and_then(|judgement| judgement.policy_rule.clone()),
            reason: line.reason,
            rules: line.rules.clone(),
            credentials: line.credentials.clone(),
            status: line.status,
            bytes_from_client: line.octets_up,
            bytes_to_client: line.octets_down,
            duration_ms: is_ended.then(|| line.duration_ms.round() as u64),
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
            destination: Some(Destination { host: HostOrIp::parse("a.example").unwrap(), port: 443 }),
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
