//! One request over two nodes, as a trace collector sees it.

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use tokio::runtime::Runtime;

use super::House;
use super::collector::{Collector, text};
use super::key_node::{Node, TIMEOUT, make_key, request};

/// Received spans, each with the node that sent it.
fn of_nodes(collector: &Collector) -> Vec<(String, Span)> {
    let all = collector.received().into_iter().filter(|one| one.service == "bulla-keys");
    all.map(|one| (one.node, one.span)).collect()
}

/// Waits until a span of the called node is below a span of the calling node. Returns all spans of the trace, and the calling span.
fn of_trace(house: &House, collector: &Collector, trace: u128) -> (Vec<(String, Span)>, Span) {
    let of_trace = || -> Vec<(String, Span)> {
        of_nodes(collector).into_iter().filter(|(_, span)| span.trace_id == trace.to_be_bytes()).collect()
    };
    let wire = || {
        let all = of_trace();
        let is_followed = |wire: &Span| {
            all.iter().any(|(node, span)| node == "fra-1" && span.parent_span_id == wire.span_id)
        };
        let wires = all.iter().filter(|(node, span)| node == "nyc-1" && span.name == "wire");
        wires.map(|(_, wire)| wire.clone()).find(is_followed)
    };
    house.until("both nodes told", || wire().is_some());
    (of_trace(), wire().unwrap())
}

#[test]
fn trace_over_two_nodes_reaches_the_collector_as_one_trace() {
    const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    const PARENT: u64 = 0x00f0_67aa_0ba9_02b7;
    let collector = Collector::start();
    // Export only traces that the caller sampled.
    let settings = format!(
        "[keys]\nmetrics_listen = \"\"\nsocket = \"none\"\n[telemetry]\notlp_endpoint = \"{}\"\notlp_share = 0.0\n",
        collector.url
    );
    let house = House::up_with(&settings, None);
    let runtime = Runtime::new().unwrap();
    house.does(&["site", "create", "frankfurt", "--attribute", "region=EU"]);
    house.does(&["site", "create", "newyork", "--attribute", "region=NA"]);
    let (_frankfurt, _) = Node::join(&house, &runtime, "fra-1", "frankfurt");
    let (newyork, in_newyork) = Node::join(&house, &runtime, "nyc-1", "newyork");
    make_key(&house, "shop");
    house.does(&["key-policy", "create", "europe", "region: EU", "--yes"]);
    let key = house.path("shop.key").display().to_string();
    house.does(&["key", "seal", "--policy", "europe", "--key", &key]);
    let sign = |trace: u128, flags: u8| {
        let mut request = request(&house, "shop");
        request.traceparent = format!("00-{trace:032x}-{PARENT:016x}-{flags:02x}");
        let terms = keyless::native::CallOptions::within(TIMEOUT);
        runtime.block_on(in_newyork.sign(request, terms)).is_ok()
    };
    // Without the sampled flag no span is exported. Retry until the node knows the key.
    house.until("it is signed for", || sign(TRACE + 1, 0));
    house.until("it is signed for, with a trace", || sign(TRACE, 1));
    let (all, wire) = of_trace(&house, &collector, TRACE);

    let named = |node: &str, name: &str| -> Vec<Span> {
        all.iter()
            .filter(|(of, span)| of == node && span.name == name)
            .map(|(_, span)| span.clone())
            .collect()
    };
    let request_span =
        named("nyc-1", "ecdsa-sha256").into_iter().find(|span| span.span_id == wire.parent_span_id);
    let request_span = request_span.unwrap();
    assert_eq!(
        (request_span.parent_span_id.as_slice(), request_span.kind()),
        (&PARENT.to_be_bytes()[..], SpanKind::Server)
    );
    assert_eq!(text(&request_span.attributes, "bulla.outcome"), "done");
    let below = |node: &str, parent: &Span, name: &str| -> Span {
        let found = named(node, name).into_iter().find(|span| span.parent_span_id == parent.span_id);
        found.unwrap_or_else(|| panic!("no {name} of {node} below {}: {all:?}", parent.name))
    };
    let queue = below("nyc-1", &request_span, "queue");
    let connect = below("nyc-1", &request_span, "connect");
    assert_eq!(wire.kind(), SpanKind::Client);
    let ask_span = below("nyc-1", &wire, "ask");
    assert_eq!(
        (text(&ask_span.attributes, "bulla.node"), text(&ask_span.attributes, "bulla.site")),
        ("fra-1".into(), "frankfurt".into())
    );
    let signed = below("fra-1", &wire, "ecdsa-sha256");
    let stages = [below("fra-1", &signed, "queue"), below("fra-1", &signed, "sign")];
    // Stages follow each other, within their parent spans.
    for (before, after) in [(&queue, &connect), (&connect, &wire), (&stages[0], &stages[1])] {
        assert_eq!(before.end_time_unix_nano, after.start_time_unix_nano, "{} {}", before.name, after.name);
    }
    for (part, whole) in
        [(&queue, &request_span), (&wire, &request_span), (&stages[0], &signed), (&stages[1], &signed)]
    {
        assert!(part.start_time_unix_nano >= whole.start_time_unix_nano, "{}", part.name);
        assert!(part.end_time_unix_nano <= whole.end_time_unix_nano, "{}", part.name);
    }
    let seen = of_nodes(&collector);
    assert!(seen.iter().all(|(_, span)| span.trace_id == TRACE.to_be_bytes()), "others were not to be told");
    drop(newyork);
}
