//! One request as it is seen: what is counted and kept of it while it passes, and told when it has.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Request, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use super::Requests;
use super::access::{Line, path_of, trace_of};
use super::har::{Exchange, Kept};
use super::inject::{Injected, REDACTED};
use super::needles::Needles;
use crate::http::asked::Asked;
use crate::http::client::Client;
use crate::http::stall::{Awaited, Upload};
use crate::relay::{Count, Counted};

/// Octets of a method in what is left behind: it is for the client to choose, and may be as long as a head.
const METHOD_OCTETS_MAX: usize = 32;

/// Counts octets of one direction, and keeps the first of them where that is asked for.
#[derive(Debug, Default)]
pub(crate) struct Tee {
    octets: AtomicU64,
    text: Mutex<Vec<u8>>,
    /// Octets that are kept at most.
    most: AtomicU64,
}

impl Count for Arc<Tee> {
    fn count(&self, octets: usize) {
        Tee::count(self, octets);
    }
}

impl Tee {
    pub(crate) fn count(&self, octets: usize) {
        self.octets.fetch_add(octets as u64, Relaxed);
    }

    fn pass(&self, data: &[u8]) {
        self.count(data.len());
        if self.most.load(Relaxed) > 0 {
            let mut text = self.text.lock();
            // It may have been forgotten meanwhile.
            let most = self.most.load(Relaxed) as usize;
            let room = most.saturating_sub(text.len()).min(data.len());
            text.extend_from_slice(&data[..room]);
        }
    }

    /// Keeps nothing, and gives back what it has.
    fn forget(&self) {
        let mut text = self.text.lock();
        self.most.store(0, Relaxed);
        drop(std::mem::take(&mut *text));
    }

    fn take(&self) -> Kept {
        Kept { octets: self.octets.load(Relaxed), text: std::mem::take(&mut *self.text.lock()) }
    }
}

/// A recording that is under way.
struct Recording {
    exchange: Exchange,
    place: OwnedSemaphorePermit,
}

/// One that is to be written; its place is free again once it is.
pub(super) struct Recorded {
    pub(super) exchange: Box<Exchange>,
    _place: OwnedSemaphorePermit,
}

/// A request under way; told when it is dropped.
pub(crate) struct Sight {
    requests: Requests,
    line: Line,
    began: Instant,
    answered: Option<Instant>,
    up: Arc<Tee>,
    down: Arc<Tee>,
    recording: Option<Box<Recording>>,
    /// Whether it is known that it is to be recorded, or that it is not.
    is_decided: bool,
}

impl Sight {
    pub(super) fn new(requests: &Requests, client: &Client, method: String, host: String) -> Self {
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
            rules: Vec::new(),
            trace_id: None,
        };
        let (up, down) = (Arc::default(), Arc::default());
        Self {
            requests: requests.clone(),
            line,
            began: Instant::now(),
            answered: None,
            up,
            down,
            recording: None,
            is_decided: false,
        }
    }

    pub(super) fn of<B>(requests: &Requests, request: &Request<B>, client: &Client) -> Self {
        let named = request.uri().authority().map(|authority| authority.as_str());
        let host = named.or_else(|| request.headers().get("host")?.to_str().ok()).unwrap_or_default();
        let host = host.chars().take(300).collect();
        let method = request.method().as_str().chars().take(METHOD_OCTETS_MAX).collect();
        let mut sight = Self::new(requests, client, method, host);
        sight.line.path = path_of(request.uri(), requests.0.with_query);
        sight.line.trace_id = trace_of(request.headers());
        sight
    }

    /// As whom a tunnel's client asks for its host.
    pub(super) fn server(&mut self, name: Option<String>) {
        self.line.server_name = name;
    }

    pub(crate) fn rules(&mut self, rules: Vec<Arc<str>>) {
        self.line.rules = rules;
    }

    /// Those that are met by the answer.
    pub(crate) fn more_rules(&mut self, rules: Vec<Arc<str>>) {
        self.line.rules.extend(rules);
    }

    /// Keeps what goes by from now on, if there is a place.
    pub(crate) fn record<B>(&mut self, request: &Request<B>, url: String) {
        let Some((place, most)) = self.requests.place_to_record() else { return };
        self.up.most.store(most as u64, Relaxed);
        self.down.most.store(most as u64, Relaxed);
        let exchange = Exchange {
            began: self.line.time,
            wait_ms: 0.0,
            receive_ms: 0.0,
            method: self.line.method.clone(),
            url,
            version: request.version(),
            request: request.headers().clone(),
            asked: Kept::default(),
            status: None,
            response: HeaderMap::new(),
            answered: Kept::default(),
            needles: Needles::default(),
            rules: Vec::new(),
        };
        self.recording = Some(Box::new(Recording { exchange, place }));
    }

    /// A credential was put in that nobody is to see: neither its header, nor where the answer says it again.
    pub(crate) fn hide(&mut self, injected: &Injected) {
        if let Some(recording) = &mut self.recording {
            let redacted = HeaderValue::from_static(REDACTED);
            recording.exchange.request.insert(injected.header().clone(), redacted);
            injected.needles().for_each(|needle| recording.exchange.needles.inject(needle));
        }
    }

    /// Once the answer is known: of several, the first who knows counts.
    pub(crate) fn decide(&mut self, is_recorded: bool) {
        if !std::mem::replace(&mut self.is_decided, true) && !is_recorded {
            self.recording = None;
            self.up.forget();
            self.down.forget();
        }
    }

    /// Where the request's body is counted.
    pub(crate) fn up(&self) -> Arc<Tee> {
        Arc::clone(&self.up)
    }

    /// Where the answer's is.
    pub(crate) fn down(&self) -> Arc<Tee> {
        Arc::clone(&self.down)
    }

    pub(crate) fn upstream(&mut self, kept: bool) {
        self.line.upstream = Some(if kept { "kept" } else { "new" });
    }

    /// Why it is refused.
    pub(super) fn refused_for(&mut self, reason: &'static str) {
        self.line.reason = Some(reason);
    }

    /// The head of the answer, as the client gets it.
    pub(crate) fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        self.line.status = Some(status.as_u16());
        self.answered = Some(Instant::now());
        if let Some(recording) = &mut self.recording {
            recording.exchange.status = Some(status);
            recording.exchange.response = headers.clone();
        }
    }

    /// Octets of the answer's body.
    pub(crate) fn passed(&self, data: &[u8]) {
        self.down.pass(data);
    }
}

impl Drop for Sight {
    fn drop(&mut self) {
        let ms = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1_000.0;
        let now = Instant::now();
        self.line.duration_ms = (ms(self.began, now) * 1_000.0).round() / 1_000.0;
        self.line.octets_up = self.up.octets.load(Relaxed);
        self.line.octets_down = self.down.octets.load(Relaxed);
        if let Some(recording) = self.recording.take() {
            let Recording { mut exchange, place } = *recording;
            let answered = self.answered.unwrap_or(now);
            (exchange.wait_ms, exchange.receive_ms) = (ms(self.began, answered), ms(answered, now));
            (exchange.asked, exchange.answered) = (self.up.take(), self.down.take());
            exchange.rules.clone_from(&self.line.rules);
            self.requests.recorded(Recorded { exchange: Box::new(exchange), _place: place });
        }
        self.requests.tell(&self.line);
    }
}

/// A request's body on its way to the upstream; cut off when nothing comes for too long.
pub(crate) struct RequestBody {
    body: Asked,
    tee: Option<Arc<Tee>>,
    upload: Upload,
    /// Takes out of trailers what is not passed on.
    clean_trailers: fn(&mut HeaderMap),
}

impl RequestBody {
    pub(crate) fn new(
        body: Asked,
        tee: Option<Arc<Tee>>,
        upload: Upload,
        clean_trailers: fn(&mut HeaderMap),
    ) -> Self {
        Self { body, tee, upload, clean_trailers }
    }

    /// The wait for the answer, from now on.
    pub(crate) fn awaited(&self) -> Awaited {
        self.upload.awaited()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Poll::Ready(mut frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            ready!(self.upload.poll(cx));
            self.body.give_up();
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        };
        match &frame {
            Some(Err(_)) => self.upload.broke(),
            _ => self.upload.over(),
        }
        if let (Some(tee), Some(Ok(frame))) = (&self.tee, &frame)
            && let Some(data) = frame.data_ref()
        {
            tee.pass(data);
        }
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            (self.clean_trailers)(trailers);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A client's side of a tunnel, as whoever sees it counts.
pub(in crate::proxy) fn counted<S>(stream: S, sight: Option<&Sight>) -> Counted<S, Arc<Tee>> {
    Counted::new(stream, sight.map(Sight::up), sight.map(Sight::down))
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
