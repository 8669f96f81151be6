//! The spans of the journey of one certificate, as a collector of traces sees them.

use opentelemetry_proto::tonic::trace::v1::Span;

use super::collector::{Collector, Received, text};

/// The spans of one renewal in the order of their start, each with the name of its parent: an order at a CA, a deployment by the agent, and
/// the certificate for the terminator, whose key is at the key service.
const RENEWAL: [(&str, &str); 10] = [
    ("renewal", "claim"),
    ("order", "renewal"),
    ("acme new-order", "order"),
    ("acme finalize", "order"),
    ("acme certificate", "order"),
    ("deployment", "renewal"),
    ("agent deploy", "deployment"),
    ("verify", "agent deploy"),
    ("served", "deployment"),
    ("edge certificate", "claim"),
];

/// Returns the spans of the certificate's trace: its claim, a renewal, and a renewal at the next CA. Only the first order proves control
/// of the names.
fn expected_story() -> Vec<(&'static str, &'static str)> {
    [&[("claim", "")][..], &RENEWAL, &RENEWAL].concat()
}

/// Trace and span of the client that calls through the proxy.
const CLIENT: (&str, &str) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");

/// Returns the header of a client that traces its requests.
pub(super) fn traceparent() -> String {
    format!("traceparent: 00-{}-{}-01", CLIENT.0, CLIENT.1)
}

/// All spans that the collector received.
struct Spans(Vec<Received>);

impl Spans {
    fn named(&self, name: &str) -> Vec<&Span> {
        let all: Vec<&Span> = self.0.iter().map(|one| &one.span).filter(|span| span.name == name).collect();
        assert!(!all.is_empty(), "no span {name}: {:?}", self.names());
        all
    }

    fn names(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|one| (one.service.as_str(), one.span.name.as_str())).collect()
    }

    fn find(&self, trace: &[u8], span: &[u8]) -> Option<&Span> {
        self.0.iter().map(|one| &one.span).find(|one| one.trace_id == trace && one.span_id == span)
    }

    fn parent(&self, of: &Span) -> Option<&Span> {
        self.find(&of.trace_id, &of.parent_span_id)
    }

    fn children(&self, of: &Span) -> Vec<&Received> {
        let is_child =
            |one: &&Received| one.span.trace_id == of.trace_id && one.span.parent_span_id == of.span_id;
        self.0.iter().filter(is_child).collect()
    }

    /// Returns whether a span belongs to a renewal without a deployment.
    fn is_undeployed(&self, span: &Span) -> bool {
        let renewal = std::iter::successors(Some(span), |span| self.parent(span));
        let mut renewal = renewal.filter(|span| span.name == "renewal");
        renewal.next().is_some_and(|run| self.children(run).iter().all(|one| one.span.name != "deployment"))
    }

    /// Returns the span that the only link of a span names.
    fn linked(&self, of: &Span) -> &Span {
        let [link] = of.links.as_slice() else { panic!("links of {of:?}") };
        self.find(&link.trace_id, &link.span_id).unwrap_or_else(|| panic!("no span for the link of {of:?}"))
    }
}

/// Returns whether a span has a status other than `Unset`. The OpenTelemetry Collector exports an absent status as code 0, `Unset`.
fn is_failed(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code != 0)
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks the trace of the certificate with this id, which a watch found with the fingerprint `rogue`, and the links to the trace.
pub(super) fn check(collector: &Collector, certificate: &str, rogue: &str, versions: usize) {
    let spans = Spans(collector.received());
    let trace = certificate.replace('-', "");
    let mut all: Vec<&Span> =
        spans.0.iter().map(|one| &one.span).filter(|span| hex(&span.trace_id) == trace).collect();
    all.sort_by_key(|span| span.start_time_unix_nano);
    let proof = all.iter().find(|span| span.name == "acme authorization").unwrap();
    assert_eq!(spans.parent(proof).unwrap().name, "order");
    // These come at any time: messages about the certificate, versions that a scan saw, and a renewal before there is a target.
    let is_in_story = |span: &&Span| match span.name.as_str() {
        "alert" | "acme authorization" => false,
        "served" => spans.parent(span).is_some_and(|parent| parent.name != "claim"),
        _ => !spans.is_undeployed(span),
    };
    let story: Vec<&Span> = all.into_iter().filter(is_in_story).collect();
    let steps = story
        .iter()
        .map(|span| (span.name.as_str(), spans.parent(span).map_or("", |parent| parent.name.as_str())));
    assert_eq!(steps.collect::<Vec<_>>(), expected_story());
    assert!(!story.iter().any(|span| is_failed(span)), "{story:#?}");
    check_claim(&spans, story[0], rogue);
    check_deployments(&story);
    check_handshake(&spans, story[0]);
    check_requests(&spans, story[0], versions);
}

/// The claim follows from the run of the watch that found the certificate, and from its alert.
fn check_claim(spans: &Spans, claim: &Span, rogue: &str) {
    let found = spans.linked(claim);
    assert_eq!((found.name.as_str(), hex(&found.trace_id)), ("found", rogue[..32].to_owned()));
    let run = spans.linked(found);
    assert_eq!((run.name.as_str(), text(&run.attributes, "bulla.watch")), ("watch run", "shop".to_owned()));
    let alert = spans.children(found).into_iter().find(|one| one.span.name == "alert").unwrap();
    assert_eq!(text(&alert.span.attributes, "bulla.kind"), "certificate.expiring");
    assert!(alert.span.start_time_unix_nano < claim.start_time_unix_nano);
}

/// Each deployment belongs to the renewal before it.
fn check_deployments(story: &[&Span]) {
    let of = |name: &str| story.iter().filter(|span| span.name == name).copied().collect::<Vec<&Span>>();
    for (renewal, deployment) in of("renewal").into_iter().zip(of("deployment")) {
        assert_eq!(deployment.parent_span_id, renewal.span_id);
        assert_eq!(text(&renewal.attributes, "bulla.issuer"), "acme");
    }
}

/// A client's handshake links to the trace. The key service's signature is below it.
fn check_handshake(spans: &Spans, claim: &Span) {
    let signed = spans.named("handshake signature").into_iter().find(|span| {
        let below = spans.children(span);
        below.iter().any(|one| one.service == "bulla-keys" && !is_failed(&one.span))
    });
    let signed = signed.unwrap_or_else(|| panic!("no signature of the key service: {:?}", spans.names()));
    assert_eq!(spans.linked(signed), claim);
}

/// The client's request is one trace over proxy and terminator. It links to the credential's version, and to the certificate.
fn check_requests(spans: &Spans, claim: &Span, versions: usize) {
    let mut used = Vec::new();
    for request in spans.named("proxy request") {
        assert_eq!((hex(&request.trace_id).as_str(), hex(&request.parent_span_id).as_str()), CLIENT);
        let version = spans.linked(request);
        assert_eq!(version.name, "credential version");
        used.push(hex(&version.trace_id));
        // The proxy repeats a request whose credential has just been replaced.
        let below = spans.children(request);
        assert!(!below.is_empty(), "below {request:?}");
        for edge in below {
            assert_eq!((edge.span.name.as_str(), spans.linked(&edge.span)), ("edge request", claim));
        }
    }
    used.sort_unstable();
    used.dedup();
    assert_eq!((used.len(), spans.named("credential version").len()), (versions, versions));
}
