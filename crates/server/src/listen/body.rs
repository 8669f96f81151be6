//! Request bodies with a timeout, and response bodies that track when the client reads them.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use inbound::Silence;
use outbound::unwanted::drain_body;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use super::executor::Streams;
use super::memory::ReservedResponseBytes;
use super::reader::ReaderTimeout;

/// A request body was not received in time.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive before the timeout")]
pub(super) struct BodyTimeout;

/// Whether the body of this request was too slow. The listener then responds 408, regardless of the handler's response.
#[derive(Clone, Default)]
pub(super) struct SlowBody(Arc<AtomicBool>);

impl SlowBody {
    pub(super) fn was_slow(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request body that must be received completely within a timeout.
pub(super) struct TimedBody {
    /// `None` once the body has ended.
    inner: Option<Incoming>,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    slow: SlowBody,
    rest: Option<Streams>,
}

impl TimedBody {
    /// Creates the body. With `rest`, a separate task reads the part that the handler leaves unread. Otherwise dropping the body
    /// would reset an HTTP/2 stream (RFC 9113 section 8.1), and clients such as curl before 8.0 then lose the response. In
    /// HTTP/1.1, dropping the body would close the connection. Clients that send head and body separately, such as Python's, then
    /// fail while writing and never read the response.
    pub(super) fn new(inner: Incoming, limit: Duration, slow: SlowBody, rest: Option<Streams>) -> Self {
        Self { inner: Some(inner), limit, timer: None, slow, rest }
    }
}

impl Drop for TimedBody {
    fn drop(&mut self) {
        let left = self.inner.take().filter(|inner| !inner.is_end_stream());
        if let (Some(left), Some(rest)) = (left, self.rest.take()) {
            rest.spawn_background(drain_body(left, self.limit));
        }
    }
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        match Pin::new(inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => return Poll::Ready(Some(Ok(frame))),
            Poll::Ready(ended) => {
                self.inner = None;
                return Poll::Ready(ended.map(|failed| failed.map_err(Into::into)));
            }
            Poll::Pending => {}
        }
        // The timeout starts when the handler first waits for the body.
        let limit = self.limit;
        let timer =
            self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        if timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.slow.0.store(true, Ordering::Relaxed);
        self.inner = None;
        Poll::Ready(Some(Err(BodyTimeout.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

/// Activity of one connection: requests in progress, idle time, and the time of the last transfer.
pub(super) struct Activity {
    began: Instant,
    in_flight: AtomicUsize,
    last_transfer_ms: AtomicU64,
    /// Start of the request head that is being received, milliseconds after `began`; [`NO_HEAD`] if there is none.
    head_ms: AtomicU64,
    silence: Silence,
    /// Responses whose client is slow to read.
    unread_responses: Mutex<Vec<Weak<Mutex<ReaderTimeout>>>>,
}

const NO_HEAD: u64 = u64::MAX;

impl Activity {
    /// Creates the activity of a new connection. The timeout of the first request head starts now.
    pub(super) fn new(silence: Silence) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            in_flight: AtomicUsize::new(0),
            last_transfer_ms: AtomicU64::new(0),
            head_ms: AtomicU64::new(0),
            silence,
            unread_responses: Mutex::default(),
        })
    }

    pub(super) fn request(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.head_ms.store(NO_HEAD, Ordering::Relaxed);
        self.silence.end();
        self.record_transfer();
        InFlight(Arc::clone(self))
    }

    /// Records that bytes were received. If no request is in progress, they belong to the next request head.
    pub(super) fn received(&self) {
        if self.in_flight() == 0 && self.head_ms.load(Ordering::Relaxed) == NO_HEAD {
            self.head_ms.store(self.now_ms(), Ordering::Relaxed);
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn record_transfer(&self) {
        self.last_transfer_ms.fetch_max(self.now_ms(), Ordering::Relaxed);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Returns the time since the last transfer.
    pub(super) fn idle_time(&self) -> Duration {
        self.began
            .elapsed()
            .saturating_sub(Duration::from_millis(self.last_transfer_ms.load(Ordering::Relaxed)))
    }

    /// Returns how long the current request head has been in transfer.
    pub(super) fn head_read_time(&self) -> Duration {
        let began = self.head_ms.load(Ordering::Relaxed);
        if began == NO_HEAD {
            Duration::ZERO
        } else {
            Duration::from_millis(self.now_ms().saturating_sub(began))
        }
    }

    /// Marks the connection as idle, so that it may be evicted for a new one.
    pub(super) fn mark_evictable(&self) {
        self.silence.begin();
        // A request that arrived meanwhile has ended the idle time.
        if self.in_flight() > 0 {
            self.silence.end();
        }
    }

    /// Returns whether the client does not read a response.
    pub(super) fn has_unread_response(&self) -> bool {
        let (now, mut unread_responses, mut unread) = (Instant::now(), self.unread_responses.lock(), false);
        unread_responses.retain(|answer| {
            let answer = answer.upgrade();
            unread |= answer.as_ref().is_some_and(|reader_timeout| reader_timeout.lock().is_over(now));
            answer.is_some()
        });
        unread
    }
}

/// A request in progress. It ends when the client has read the last byte of the response.
pub(super) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.record_transfer();
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Maximum bytes of a response that are sent in one part: the usual size of an HTTP/2 frame (RFC 9113 section 4.2). The rest stays
/// in this buffer, where it is counted, until the client reads.
const PART_MAX: usize = 16 << 10;

/// A response body. It keeps its request in progress, and its memory reserved, until the client has read the last byte.
pub(super) struct TrackedResponseBody {
    inner: Body,
    in_flight: InFlight,
    /// Bytes of the last frame that are not sent yet.
    rest: Bytes,
    /// Timeout for a client that reads nothing; `None` for a response that fits in one part.
    reader_timeout: Option<Arc<Mutex<ReaderTimeout>>>,
    _memory: Option<ReservedResponseBytes>,
}

impl TrackedResponseBody {
    /// Creates the body; `reader_timeout` is the timeout for a client that reads nothing.
    pub(super) fn new(
        inner: Body,
        in_flight: InFlight,
        memory: Option<ReservedResponseBytes>,
        reader_timeout: Duration,
    ) -> Self {
        let is_small = HttpBody::size_hint(&inner).exact().is_some_and(|bytes| bytes <= PART_MAX as u64);
        let reader_timeout = (!is_small).then(|| {
            let mut reader_timeout = ReaderTimeout::new(reader_timeout);
            reader_timeout.wait(Instant::now());
            let reader_timeout = Arc::new(Mutex::new(reader_timeout));
            in_flight.0.unread_responses.lock().push(Arc::downgrade(&reader_timeout));
            reader_timeout
        });
        Self { inner, in_flight, rest: Bytes::new(), reader_timeout, _memory: memory }
    }

    fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.inner).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return other,
            }
        }
        let part = self.rest.split_to(self.rest.len().min(PART_MAX));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }
}

impl HttpBody for TrackedResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let part = self.poll_part(context);
        if part.is_ready() {
            self.in_flight.0.record_transfer();
        }
        if let Some(reader_timeout) = &self.reader_timeout {
            let (now, mut reader_timeout) = (Instant::now(), reader_timeout.lock());
            // A poll for the next part shows that the client has read the previous one.
            reader_timeout.read(now, 0);
            if let Poll::Ready(Some(Ok(frame))) = &part {
                reader_timeout.read(now, frame.data_ref().map_or(0, Bytes::len));
                reader_timeout.wait(now);
            }
        }
        part
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
