//! The span of a request, for a collector of traces.

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use telemetry::spans::{self, Kind, Span, TRACEPARENT, TraceParent};

use super::line::Line;

/// The span of a sampled request in progress.
#[derive(Debug)]
pub(super) struct RequestSpan {
    own: TraceParent,
    /// The client's span. 0 when the trace begins here.
    parent: u64,
    began_us: i64,
    links: Vec<TraceParent>,
}

impl RequestSpan {
    /// Returns the span of a sampled request; otherwise `None`. If the client sent a trace, the client decides about sampling;
    /// otherwise this process decides.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        if !spans::is_installed() {
            return None;
        }
        let given = headers.get(TRACEPARENT).and_then(|field| TraceParent::parse(field.to_str().ok()?));
        let (own, parent) = match given {
            Some(client) => (client.is_sampled().then(|| client.child(spans::random_id()))?, client.parent()),
            None if spans::samples_new_trace() => {
                let trace = u128::from(spans::random_id()) << 64 | u128::from(spans::random_id());
                (TraceParent::root(trace, spans::random_id()).sampled(), 0)
            }
            None => return None,
        };
        Some(Self { own, parent, began_us: spans::now_us(), links: Vec::new() })
    }

    /// Returns the `traceparent` field for the upstream; `None` if the client sent no trace.
    pub(super) fn traceparent(&self) -> Option<HeaderValue> {
        (self.parent != 0).then(|| HeaderValue::from_str(&self.own.to_string()).ok())?
    }

    pub(super) fn link(&mut self, to: TraceParent) {
        self.links.push(to);
    }

    /// Exports the span of a request that has ended.
    pub(super) fn finish(self, service: &'static str, line: &Line) {
        let mut span = Span::new(self.own, self.parent, service, self.began_us, spans::now_us())
            .with("http.request.method", &line.method)
            .with("server.address", &line.host)
            .with("url.path", line.path.split('?').next().unwrap_or_default());
        if let Some(status) = line.status {
            span = span.with("http.response.status_code", status.to_string());
        }
        for credential in &line.credentials {
            span = span.with("bulla.credential", credential.to_string());
        }
        span.kind = Kind::Server;
        span.links = self.links;
        span.error = match (line.reason, line.status) {
            (Some(reason), _) => Some(reason.to_owned()),
            (None, None) => Some("the client closed the connection".to_owned()),
            (None, Some(status)) => (status >= 500).then(|| format!("status {status}")),
        };
        spans::emit(vec![span]);
    }
}
