//! Access log entry of one request: counts and captures data while the request is in progress.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Request, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use telemetry::spans::TraceParent;
use x509::SpkiHash;

use super::super::client::Client;
use super::line::{
    Destination, Judgement, Line, LoggedQuery, Original, PATH_BYTES_MAX, path_of, trace_id_of,
};
use super::log::Log;
use super::span::RequestSpan;
use crate::relay::{Count, CountedStream};

/// Maximum bytes of a method in a log line. A client may send a method as long as the whole header.
pub const METHOD_BYTES_MAX: usize = 32;
/// Maximum characters of a host in a log line.
const HOST_CHARS_MAX: usize = 300;

/// Counter of the bytes of one direction. Captures the first bytes if requested.
#[derive(Debug, Default)]
pub struct Tee {
    bytes: AtomicU64,
    text: Mutex<Vec<u8>>,
    /// Maximum bytes to capture.
    most: AtomicU64,
}

impl Count for Arc<Tee> {
    fn count(&self, bytes: usize) {
        Tee::count(self, bytes);
    }
}

impl Tee {
    /// Adds `bytes` to the count.
    pub fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts `data`, and captures it up to the limit.
    pub fn pass(&self, data: &[u8]) {
        self.count(data.len());
        if self.most.load(Relaxed) > 0 {
            let mut text = self.text.lock();
            // Another thread may have stopped the capture meanwhile.
            let most = self.most.load(Relaxed) as usize;
            let room = most.saturating_sub(text.len()).min(data.len());
            text.extend_from_slice(&data[..room]);
        }
    }

    /// Stops the capture, and frees the captured bytes.
    fn forget(&self) {
        let mut text = self.text.lock();
        self.most.store(0, Relaxed);
        drop(std::mem::take(&mut *text));
    }

    fn take(&self) -> CapturedBody {
        CapturedBody { bytes: self.bytes.load(Relaxed), text: std::mem::take(&mut *self.text.lock()) }
    }
}

/// The captured part of a body.
#[derive(Debug, Default)]
pub struct CapturedBody {
    /// Length of the whole body in bytes.
    pub bytes: u64,
    /// The first bytes of the body.
    pub text: Vec<u8>,
}

/// Whether a request was sent on a pooled or a new upstream connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ConnectionReuse {
    /// A connection from the pool.
    Pooled,
    /// A new connection, opened for the request.
    New,
}

/// SHA-256 of the public key (SPKI) in the certificate of an upstream, attached to its responses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ServerKey(pub SpkiHash);

/// Durations of the phases of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// Milliseconds from the request's header to the response's header.
    pub wait_ms: f64,
    /// Milliseconds from the response's header to the end of the response.
    pub receive_ms: f64,
}

/// A recording of a request and its response, written while the request is in progress.
pub trait Recording: Send + Sync {
    /// Records that a credential was injected into `header`. The recording shows neither the header's value nor any of `secrets`.
    fn hide(&mut self, header: &HeaderName, secrets: &mut dyn Iterator<Item = &[u8]>);

    /// Records the response's header, as sent to the client.
    fn answered(&mut self, status: StatusCode, headers: &HeaderMap);

    /// Ends the exchange and writes the recording. `rules` are the names of the applied rules.
    fn finish(
        self: Box<Self>,
        timings: Timings,
        request: CapturedBody,
        answer: CapturedBody,
        rules: &[Arc<str>],
    );
}

/// Outcome of an exchange: status, bytes, duration and completeness.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    /// Status of the response; `None` if the client closed the connection before there was one.
    pub status: Option<u16>,
    /// Bytes from the client: of the request's body, or of a tunnel.
    pub octets_up: u64,
    /// Bytes to the client: of the response's body, or of a tunnel.
    pub octets_down: u64,
    /// Milliseconds since the request arrived.
    pub duration_ms: f64,
    /// Whether the whole response was read.
    pub is_complete: bool,
    /// Key of the upstream's certificate.
    pub server_key: Option<ServerKey>,
    /// Number of injected values that were removed from the response.
    pub removed: u64,
    /// Reason why the request was rejected or its response cut off, if it was.
    pub reason: Option<&'static str>,
}

/// A value that is kept until an exchange ends, and then receives the outcome of the exchange.
pub trait EndHandler: Send + Sync {
    /// Called with the outcome when the exchange ends.
    fn ended(self: Box<Self>, how: &Ended);
}

/// The entry of a request in progress. Dropping it writes the log line.
pub struct Entry {
    log: Arc<Log>,
    /// ID of the request for the observer; `None` without an observer.
    observed: Option<u64>,
    line: Line,
    began: Instant,
    answered: Option<Instant>,
    up: Arc<Tee>,
    down: Arc<Tee>,
    recording: Option<Box<dyn Recording>>,
    on_end: Vec<Box<dyn EndHandler>>,
    server_key: Option<ServerKey>,
    is_complete: bool,
    removed: u64,
    /// Whether the decision to keep or discard the recording is final.
    is_decided: bool,
    span: Option<RequestSpan>,
}

impl Entry {
    pub(super) fn new(log: Arc<Log>, client: &Client, method: String, host: String) -> Self {
        let line = Line {
            time: Timestamp::now(),
            client: client.ip(),
            user: client.user.clone(),
            method,
            host,
            server_name: None,
            path: String::new(),
            status: None,
            reason: None,
            octets_up: 0,
            octets_down: 0,
            duration_ms: 0.0,
            upstream: None,
            upstream_server: None,
            rules: Vec::new(),
            judgement: None,
            credentials: Vec::new(),
            trace_id: None,
            destination: None,
            original: None,
        };
        let observed = log.observer.as_ref().map(|observer| observer.next_id());
        let (up, down) = (Arc::default(), Arc::default());
        Self {
            log,
            observed,
            line,
            began: Instant::now(),
            answered: None,
            up,
            down,
            recording: None,
            on_end: Vec::new(),
            server_key: None,
            is_complete: false,
            removed: 0,
            is_decided: false,
            span: None,
        }
    }

    pub(super) fn of<B>(log: Arc<Log>, request: &Request<B>, client: &Client, query: LoggedQuery) -> Self {
        let named = request.uri().authority().map(|authority| authority.as_str());
        let host = named.or_else(|| request.headers().get("host")?.to_str().ok()).unwrap_or_default();
        let host = host.chars().take(HOST_CHARS_MAX).collect();
        let method = request.method().as_str().chars().take(METHOD_BYTES_MAX).collect();
        let mut entry = Self::new(log, client, method, host);
        entry.line.path = path_of(request.uri(), query);
        entry.line.trace_id = trace_id_of(request.headers());
        entry
    }

    pub(super) fn set_span(&mut self, span: Option<RequestSpan>) {
        self.span = span;
    }

    /// Returns the field `traceparent` for the upstream, with the span of this exchange as parent. `None` unless the client sent a
    /// sampled trace.
    pub fn traceparent(&self) -> Option<HeaderValue> {
        self.span.as_ref()?.traceparent()
    }

    /// Links the span of the request to a span of another trace.
    pub fn link(&mut self, to: TraceParent) {
        if let Some(span) = &mut self.span {
            span.link(to);
        }
    }

    /// Returns the arrival time of the request.
    pub fn time(&self) -> Timestamp {
        self.line.time
    }

    /// Returns the request's method, truncated to the limit.
    pub fn method(&self) -> &str {
        &self.line.method
    }

    /// Sets the path, truncated to the limit.
    pub(super) fn set_path(&mut self, path: &str) {
        self.line.path = path.chars().take(PATH_BYTES_MAX).collect();
    }

    /// Sets the server name (SNI) in the ClientHello of a tunnel's client.
    pub fn set_server_name(&mut self, name: Option<String>) {
        self.line.server_name = name;
    }

    /// Sets the verified destination, if there is an observer.
    pub fn set_destination(&mut self, make: impl FnOnce() -> Destination) {
        if self.observed.is_some() {
            self.line.destination = Some(make());
        }
    }

    /// Sets the data for a replay of the request, if there is an observer.
    pub fn set_original(&mut self, make: impl FnOnce() -> Original) {
        if self.observed.is_some() {
            self.line.original = Some(make());
        }
    }

    /// Sets the names of the rules that the request matches.
    pub fn rules(&mut self, rules: Vec<Arc<str>>) {
        self.line.rules = rules;
    }

    /// Adds the names of the rules that match the response.
    pub fn add_response_rules(&mut self, rules: Vec<Arc<str>>) {
        self.line.rules.extend(rules);
    }

    /// Sets the decision of the policy.
    pub fn set_judgement(&mut self, judgement: Judgement) {
        self.line.judgement = Some(judgement);
    }

    /// Adds the name of a credential that was injected.
    pub fn credential(&mut self, name: Arc<str>) {
        self.line.credentials.push(name);
    }

    /// Stores `on_end` until the exchange ends.
    pub fn keep(&mut self, on_end: Box<dyn EndHandler>) {
        self.on_end.push(on_end);
    }

    /// Starts a recording. Captures up to `bytes_max` bytes of each body from now on.
    pub fn record(&mut self, recording: Box<dyn Recording>, bytes_max: usize) {
        self.up.most.store(bytes_max as u64, Relaxed);
        self.down.most.store(bytes_max as u64, Relaxed);
        self.recording = Some(recording);
    }

    /// Hides an injected credential from the recording: the value of `header`, and the `secrets` wherever they appear.
    pub fn hide<'a>(&mut self, header: &HeaderName, mut secrets: impl Iterator<Item = &'a [u8]>) {
        if let Some(recording) = &mut self.recording {
            recording.hide(header, &mut secrets);
        }
    }

    /// Decides whether the recording is kept, once the response is known. Only the first call has an effect.
    pub fn set_keep_recording(&mut self, is_recorded: bool) {
        if !std::mem::replace(&mut self.is_decided, true) && !is_recorded {
            self.recording = None;
            self.up.forget();
            self.down.forget();
        }
    }

    /// Returns the counter of the request's body.
    pub fn up(&self) -> Arc<Tee> {
        Arc::clone(&self.up)
    }

    /// Returns the counter of the response's body.
    pub fn down(&self) -> Arc<Tee> {
        Arc::clone(&self.down)
    }

    /// Sets whether the request was sent on a pooled or a new connection.
    pub fn upstream(&mut self, connection: ConnectionReuse) {
        self.line.upstream = Some(match connection {
            ConnectionReuse::Pooled => "kept",
            ConnectionReuse::New => "new",
        });
    }

    /// Sets the key of the certificate of the upstream that responded.
    pub fn server_key(&mut self, key: ServerKey) {
        self.server_key = Some(key);
    }

    /// Sets the number of injected values that were removed from the response.
    pub fn removed(&mut self, removed: u64) {
        self.removed = removed;
    }

    /// Records that the whole response was read.
    pub fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Sets the server that the request was sent to, for an upstream with several servers.
    pub fn upstream_server(&mut self, server: Arc<str>) {
        self.line.upstream_server = Some(server);
    }

    /// Sets the reason why the request was rejected.
    pub fn set_refusal_reason(&mut self, reason: &'static str) {
        self.line.reason = Some(reason);
    }

    /// Records the response's header, as sent to the client.
    pub fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.line.status = Some(status.as_u16());
        self.answered = Some(Instant::now());
        if let Some(recording) = &mut self.recording {
            recording.answered(status, headers);
        }
        self.observe(false);
    }

    fn observe(&self, is_ended: bool) {
        if let (Some(observer), Some(id)) = (&self.log.observer, self.observed) {
            observer.observed(id, &self.line, is_ended);
        }
    }

    /// Counts and captures a piece of the response's body.
    pub fn passed(&self, data: &[u8]) {
        self.down.pass(data);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1_000.0;
        let now = Instant::now();
        self.line.duration_ms = (ms(self.began, now) * 1_000.0).round() / 1_000.0;
        self.line.octets_up = self.up.bytes.load(Relaxed);
        self.line.octets_down = self.down.bytes.load(Relaxed);
        if !self.on_end.is_empty() {
            let Line { status, octets_up, octets_down, duration_ms, reason, .. } = self.line;
            let Self { is_complete, server_key, removed, .. } = *self;
            let how = Ended {
                status,
                octets_up,
                octets_down,
                duration_ms,
                is_complete,
                server_key,
                removed,
                reason,
            };
            self.on_end.drain(..).for_each(|on_end| on_end.ended(&how));
        }
        if let Some(recording) = self.recording.take() {
            let answered = self.answered.unwrap_or(now);
            let timings = Timings { wait_ms: ms(self.began, answered), receive_ms: ms(answered, now) };
            recording.finish(timings, self.up.take(), self.down.take(), &self.line.rules);
        }
        self.observe(true);
        if let Some(span) = self.span.take() {
            span.finish(self.log.service, &self.line);
        }
        self.log.write(&self.line);
    }
}

/// Wraps the client side of a tunnel so that `entry` counts its bytes.
pub fn counted<S>(stream: S, entry: Option<&Entry>) -> CountedStream<S, Arc<Tee>> {
    CountedStream::new(stream, entry.map(Entry::up), entry.map(Entry::down))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_bytes_are_counted_and_not_buffered() {
        let tee = Tee::default();
        tee.most.store(8, Relaxed);
        tee.pass(b"12345");
        assert_eq!(tee.text.lock().as_slice(), b"12345");
        tee.forget();
        tee.pass(b"67890");
        let captured = tee.take();
        assert_eq!((captured.bytes, captured.text.as_slice()), (10, &b""[..]));
        assert_eq!(captured.text.capacity(), 0, "nor is its room");
    }
}
