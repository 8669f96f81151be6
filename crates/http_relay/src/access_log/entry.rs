//! The entry of one request in the access log: what is counted and captured while the request is under way.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use hyper::header::HeaderName;
use hyper::{HeaderMap, Request, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;

use super::super::client::Client;
use super::line::{Judgement, Line, LoggedQuery, path_of, trace_of};
use super::log::Log;
use crate::relay::{Count, CountedStream};

/// Bytes of a method in a line: the client chooses it, and it may be as long as a request's head.
const METHOD_OCTETS_MAX: usize = 32;
/// Characters of a host in a line.
const HOST_CHARS_MAX: usize = 300;

/// Counts the bytes of one direction, and captures the first of them where that is asked for.
#[derive(Debug, Default)]
pub struct Tee {
    octets: AtomicU64,
    text: Mutex<Vec<u8>>,
    /// Bytes that are captured at most.
    most: AtomicU64,
}

impl Count for Arc<Tee> {
    fn count(&self, octets: usize) {
        Tee::count(self, octets);
    }
}

impl Tee {
    /// Adds `octets` to the count.
    pub fn count(&self, octets: usize) {
        self.octets.fetch_add(octets as u64, Relaxed);
    }

    /// Counts `data`, and captures it as far as the limit allows.
    pub fn pass(&self, data: &[u8]) {
        self.count(data.len());
        if self.most.load(Relaxed) > 0 {
            let mut text = self.text.lock();
            // It may have been forgotten meanwhile.
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
        CapturedBody { octets: self.octets.load(Relaxed), text: std::mem::take(&mut *self.text.lock()) }
    }
}

/// A body as far as it was captured.
#[derive(Debug, Default)]
pub struct CapturedBody {
    /// Bytes of the whole body.
    pub octets: u64,
    /// The first bytes of it.
    pub text: Vec<u8>,
}

/// The connection that a request went out on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UpstreamConnection {
    /// One from the pool.
    Kept,
    /// One that was made for the request.
    New,
}

/// How long an exchange took.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// Milliseconds from the request's head to the answer's head.
    pub wait_ms: f64,
    /// Milliseconds from the answer's head to the end.
    pub receive_ms: f64,
}

/// A recording of a request and its answer, made while the request is under way.
pub trait Recording: Send + Sync {
    /// A credential was put into `header`. The recording shows neither the header's value nor any of `secrets`.
    fn hide(&mut self, header: &HeaderName, secrets: &mut dyn Iterator<Item = &[u8]>);

    /// The head of the answer, as the client gets it.
    fn answered(&mut self, status: StatusCode, headers: &HeaderMap);

    /// The exchange has ended: writes the recording. `rules` are the names of the rules that were applied.
    fn finish(
        self: Box<Self>,
        timings: Timings,
        request: CapturedBody,
        answer: CapturedBody,
        rules: &[Arc<str>],
    );
}

/// Something that lasts as long as an exchange, and is told how many bytes it had.
pub trait Lasting: Send + Sync {
    /// The exchange has ended. `bytes` are those of both bodies.
    fn ended(self: Box<Self>, bytes: u64);
}

/// The entry of a request that is under way. Its line is written when it is dropped.
pub struct Entry {
    log: Arc<Log>,
    line: Line,
    began: Instant,
    answered: Option<Instant>,
    up: Arc<Tee>,
    down: Arc<Tee>,
    recording: Option<Box<dyn Recording>>,
    lasting: Option<Box<dyn Lasting>>,
    /// Whether it is decided that the request is recorded, or that it is not.
    is_decided: bool,
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
        };
        let (up, down) = (Arc::default(), Arc::default());
        Self {
            log,
            line,
            began: Instant::now(),
            answered: None,
            up,
            down,
            recording: None,
            lasting: None,
            is_decided: false,
        }
    }

    pub(super) fn of<B>(log: Arc<Log>, request: &Request<B>, client: &Client, query: LoggedQuery) -> Self {
        let named = request.uri().authority().map(|authority| authority.as_str());
        let host = named.or_else(|| request.headers().get("host")?.to_str().ok()).unwrap_or_default();
        let host = host.chars().take(HOST_CHARS_MAX).collect();
        let method = request.method().as_str().chars().take(METHOD_OCTETS_MAX).collect();
        let mut entry = Self::new(log, client, method, host);
        entry.line.path = path_of(request.uri(), query);
        entry.line.trace_id = trace_of(request.headers());
        entry
    }

    /// When the request came.
    pub fn time(&self) -> Timestamp {
        self.line.time
    }

    /// The request's method, cut to a limit.
    pub fn method(&self) -> &str {
        &self.line.method
    }

    /// Sets the server name in the ClientHello of a tunnel's client.
    pub fn set_server_name(&mut self, name: Option<String>) {
        self.line.server_name = name;
    }

    /// Sets the names of the rules that the request matches.
    pub fn rules(&mut self, rules: Vec<Arc<str>>) {
        self.line.rules = rules;
    }

    /// Adds the names of the rules that the answer matches.
    pub fn more_rules(&mut self, rules: Vec<Arc<str>>) {
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

    /// Keeps `lasting` until the exchange ends.
    pub fn keep(&mut self, lasting: Box<dyn Lasting>) {
        self.lasting = Some(lasting);
    }

    /// Captures `octets_max` bytes of each body from now on, for `recording`.
    pub fn record(&mut self, recording: Box<dyn Recording>, octets_max: usize) {
        self.up.most.store(octets_max as u64, Relaxed);
        self.down.most.store(octets_max as u64, Relaxed);
        self.recording = Some(recording);
    }

    /// Hides a credential that was put into `header` from the recording, as well as its `secrets` wherever they appear.
    pub fn hide<'a>(&mut self, header: &HeaderName, mut secrets: impl Iterator<Item = &'a [u8]>) {
        if let Some(recording) = &mut self.recording {
            recording.hide(header, &mut secrets);
        }
    }

    /// Decides whether the recording is kept, once the answer is known. The first call counts.
    pub fn set_recorded(&mut self, is_recorded: bool) {
        if !std::mem::replace(&mut self.is_decided, true) && !is_recorded {
            self.recording = None;
            self.up.forget();
            self.down.forget();
        }
    }

    /// The counter of the request's body.
    pub fn up(&self) -> Arc<Tee> {
        Arc::clone(&self.up)
    }

    /// The counter of the answer's body.
    pub fn down(&self) -> Arc<Tee> {
        Arc::clone(&self.down)
    }

    /// Sets the connection that the request went out on.
    pub fn upstream(&mut self, connection: UpstreamConnection) {
        self.line.upstream = Some(match connection {
            UpstreamConnection::Kept => "kept",
            UpstreamConnection::New => "new",
        });
    }

    /// Sets the server that the request was sent to, of an upstream that may have several.
    pub fn upstream_server(&mut self, server: Arc<str>) {
        self.line.upstream_server = Some(server);
    }

    /// Sets the reason of a refusal.
    pub fn refused_for(&mut self, reason: &'static str) {
        self.line.reason = Some(reason);
    }

    /// Notes the head of the answer, as the client gets it.
    pub fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.line.status = Some(status.as_u16());
        self.answered = Some(Instant::now());
        if let Some(recording) = &mut self.recording {
            recording.answered(status, headers);
        }
    }

    /// Notes a piece of the answer's body.
    pub fn passed(&self, data: &[u8]) {
        self.down.pass(data);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1_000.0;
        let now = Instant::now();
        self.line.duration_ms = (ms(self.began, now) * 1_000.0).round() / 1_000.0;
        self.line.octets_up = self.up.octets.load(Relaxed);
        self.line.octets_down = self.down.octets.load(Relaxed);
        if let Some(lasting) = self.lasting.take() {
            lasting.ended(self.line.octets_up + self.line.octets_down);
        }
        if let Some(recording) = self.recording.take() {
            let answered = self.answered.unwrap_or(now);
            let timings = Timings { wait_ms: ms(self.began, answered), receive_ms: ms(answered, now) };
            recording.finish(timings, self.up.take(), self.down.take(), &self.line.rules);
        }
        self.log.write(&self.line);
    }
}

/// The client's side of a tunnel, counted by `entry`.
pub fn counted<S>(stream: S, entry: Option<&Entry>) -> CountedStream<S, Arc<Tee>> {
    CountedStream::new(stream, entry.map(Entry::up), entry.map(Entry::down))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_is_counted_and_not_kept() {
        let tee = Tee::default();
        tee.most.store(8, Relaxed);
        tee.pass(b"12345");
        assert_eq!(tee.text.lock().as_slice(), b"12345");
        tee.forget();
        tee.pass(b"67890");
        let kept = tee.take();
        assert_eq!((kept.octets, kept.text.as_slice()), (10, &b""[..]));
        assert_eq!(kept.text.capacity(), 0, "nor is its room");
    }
}
