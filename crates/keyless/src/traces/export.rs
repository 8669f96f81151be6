//! Spans of finished requests.

use std::time::Duration;

use telemetry::spans::{Kind, Span, random_id};

use super::record::{End, Record};
use crate::operation::OPERATIONS;

/// Creates the spans of one trace.
struct SpanBuilder {
    trace: u128,
    began_ns: u64,
}

impl SpanBuilder {
    fn span(&self, parent: u64, name: &'static str, from: Duration, until: Duration) -> Span {
        Span {
            trace: self.trace,
            id: random_id().max(1),
            parent,
            name,
            kind: Kind::Internal,
            began_ns: self.began_ns.saturating_add(nanos(from)),
            ended_ns: self.began_ns.saturating_add(nanos(until)),
            attributes: Vec::new(),
            links: Vec::new(),
            error: None,
        }
    }
}

/// Returns the spans of a request, below the span of its caller. Its stages are `queue` and `sign`, or `queue`, `connect` and
/// `wire` with an `attempt` span for each node that was tried. The request to another node contains the ID of the `wire` span, so the
/// spans of that node are below `wire`.
pub(super) fn spans(record: &Record) -> Vec<Span> {
    let maker = SpanBuilder { trace: record.trace, began_ns: record.at_us.saturating_mul(1_000) };
    let took = record.took;
    let name = OPERATIONS.get(record.operation_index).map_or("unknown", |(_, name, _)| name);
    let mut request = maker.span(record.parent, name, Duration::ZERO, took);
    request.kind = Kind::Server;
    request.attributes = attributes(record);
    request.error = match &record.end {
        End::Failed(_, why) => Some(why.clone()),
        End::Done | End::Cancelled => None,
    };
    let own = request.id;
    let mut all = vec![request];
    let Some(queued) = record.queued else { return all };
    all.push(maker.span(own, "queue", Duration::ZERO, queued));
    let Some(hops) = &record.hops else {
        all.push(maker.span(own, "sign", queued, took));
        return all;
    };
    // If no node was tried, the whole time was spent waiting for a connection.
    let connected_at = hops.connect.map_or(took, |connect| (queued + connect).min(took));
    all.push(maker.span(own, "connect", queued, connected_at));
    if hops.connect.is_none() {
        return all;
    }
    let wire = Span { id: record.span, kind: Kind::Client, ..maker.span(own, "wire", connected_at, took) };
    all.push(wire);
    for hop in hops.all() {
        let from = queued + hop.after;
        let until = hop.end.map_or(took, |(took, _)| from + took);
        let mut attempt = maker.span(record.span, "ask", from, until);
        let text = |name, value: &str| (name, value.to_owned());
        attempt.attributes = vec![
            text("bulla.node", &hop.node),
            text("bulla.site", &hop.site),
            text("bulla.why", hop.why),
            text("bulla.outcome", hop.outcome()),
        ];
        attempt.error = hop.end.and_then(|(_, error)| error).map(str::to_owned);
        all.push(attempt);
    }
    all
}

fn attributes(record: &Record) -> Vec<(&'static str, String)> {
    let outcome = match &record.end {
        End::Done => "done",
        End::Cancelled => "gone",
        End::Failed(name, _) => name,
    };
    let mut all = vec![("bulla.tenant", record.tenant.to_string()), ("bulla.outcome", outcome.to_owned())];
    all.extend(record.key.map(|key| ("bulla.key", key.to_string())));
    all.extend(record.request_id.as_ref().map(|id| ("bulla.request_id", id.to_string())));
    all
}

fn nanos(of: Duration) -> u64 {
    u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)
}
