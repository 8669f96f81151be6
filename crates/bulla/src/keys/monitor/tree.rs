//! Joins the records of one trace from several services into a tree: a request, the nodes that received the request, and the
//! records of these nodes.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::services::UnreachableService;

/// The requests of a trace that one service recorded.
#[derive(Deserialize)]
pub(super) struct ServiceTraces {
    #[serde(default)]
    node: Option<String>,
    #[serde(default)]
    site: Option<String>,
    requests: Vec<Request>,
    #[serde(default)]
    more: bool,
}

/// The record that one service has of a request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Request {
    /// The service that returned the trace.
    #[serde(default)]
    pub(super) service: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) site: Option<String>,
    pub(super) trace_id: String,
    pub(super) span_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parent_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request_id: Option<String>,
    pub(super) at_us: i64,
    pub(super) tenant: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    pub(super) opcode: String,
    pub(super) outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    pub(super) took_us: u64,
    pub(super) stages: StageDurations,
    pub(super) asked: Vec<Hop>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct StageDurations {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) queue_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) connect_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wire_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sign_us: Option<u64>,
}

/// A node that received the request, with the request as that node recorded it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Hop {
    pub(super) node: String,
    pub(super) site: String,
    pub(super) why: String,
    pub(super) after_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) took_us: Option<u64>,
    pub(super) outcome: String,
    /// Record of the node that received the request. `None` if that node was not queried or did not record the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<Box<Request>>,
}

/// All known requests of a trace.
#[derive(Debug, Serialize)]
pub(super) struct Tree {
    /// Services that responded.
    pub(super) services: usize,
    pub(super) away: Vec<UnreachableService>,
    /// Whether a service has more traces than it returned.
    pub(super) more: bool,
    /// Requests without a known parent, the earliest first.
    pub(super) requests: Vec<Request>,
}

impl Tree {
    /// Builds the tree from the services' traces, each with the service's address.
    pub(super) fn of(traces: Vec<(String, ServiceTraces)>, away: Vec<UnreachableService>) -> Self {
        let (services, more) = (traces.len(), traces.iter().any(|(_, traces)| traces.more));
        let mut seen = HashSet::new();
        let mut all = Vec::new();
        for (service, traces) in traces {
            for mut request in traces.requests {
                (request.service, request.node, request.site) =
                    (service.clone(), traces.node.clone(), traces.site.clone());
                // A service that is queried by two addresses returns its requests twice.
                if seen.insert((request.span_id.clone(), request.at_us)) {
                    all.push(request);
                }
            }
        }
        Self { services, away, more, requests: joined(all) }
    }
}

/// Puts each request below the request that caused it. A request is never forwarded twice, so the tree has two levels.
fn joined(all: Vec<Request>) -> Vec<Request> {
    let (mut above, mut below): (Vec<Request>, Vec<Request>) =
        all.into_iter().partition(|request| !request.asked.is_empty());
    below.sort_by_key(|request| request.at_us);
    for request in below {
        let asker = |one: &&mut Hop| one.request.is_none() && Some(&one.node) == request.node.as_ref();
        let hop = above
            .iter_mut()
            .filter(|caller| request.parent_id.as_ref() == Some(&caller.span_id))
            .flat_map(|caller| &mut caller.asked)
            .find(asker);
        match hop {
            Some(hop) => hop.request = Some(Box::new(request)),
            None => above.push(request),
        }
    }
    above.sort_by_key(|request| request.at_us);
    above
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn traces(node: &str, requests: &Value) -> (String, ServiceTraces) {
        let traces =
            json!({ "node": node, "site": format!("{node}-site"), "requests": requests, "more": false });
        (format!("http://{node}"), serde_json::from_value(traces).unwrap())
    }

    fn request(span: &str, parent: Option<&str>, at_us: u64, asked: &[&str]) -> Value {
        let hop = |node: &&str| json!({ "node": node, "site": "s", "why": "first", "after_us": 1, "outcome": "done" });
        json!({
            "trace_id": "t", "span_id": span, "parent_id": parent, "at_us": at_us, "tenant": "shop", "opcode": "ed25519",
            "outcome": "done", "took_us": 5, "stages": { "queue_us": 1 }, "asked": asked.iter().map(hop).collect::<Vec<_>>(),
        })
    }

    #[test]
    fn trace_tree_nests_a_request_below_the_calling_node() {
        let caller = json!([request("aa", Some("01"), 10, &["fra-1", "par-1"])]);
        let answering = json!([request("bb", Some("aa"), 11, &[]), request("cc", Some("dd"), 5, &[])]);
        let tree = Tree::of(
            vec![
                traces("nyc-1", &caller),
                traces("fra-1", &answering),
                traces("fra-1", &answering),
                traces("par-1", &json!([])),
            ],
            Vec::new(),
        );
        let roots: Vec<&str> = tree.requests.iter().map(|root| root.span_id.as_str()).collect();
        assert_eq!(roots, ["cc", "aa"], "whoever is not known asked for the first");
        let asked = &tree.requests[1].asked;
        let below = asked[0].request.as_ref().unwrap();
        assert_eq!((below.span_id.as_str(), below.node.as_deref()), ("bb", Some("fra-1")));
        assert_eq!(below.service, "http://fra-1");
        assert!(asked[1].request.is_none(), "the other node does not know the request");
    }

    #[test]
    fn two_attempts_at_one_node_get_separate_child_requests() {
        let caller = json!([request("aa", None, 10, &["fra-1", "fra-1"])]);
        let answering = json!([request("cc", Some("aa"), 12, &[]), request("bb", Some("aa"), 11, &[])]);
        let tree = Tree::of(vec![traces("nyc-1", &caller), traces("fra-1", &answering)], Vec::new());
        let below: Vec<&str> =
            tree.requests[0].asked.iter().map(|hop| hop.request.as_ref().unwrap().span_id.as_str()).collect();
        assert_eq!(below, ["bb", "cc"]);
    }
}
