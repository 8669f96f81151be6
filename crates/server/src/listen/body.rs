//! Bodies: requests' that come in time, answers' that are known to be under way.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use outbound::unwanted::read_away;
use tokio::time::{Instant, Sleep};

use super::executor::Streams;

/// A request's body that did not come in time.
#[derive(Debug, thiserror::Error)]
#[error("the body did not come in time")]
pub(super) struct TooSlow;

/// Whether this request's body was too slow: the listener answers 408 then, whatever its handler makes of it.
#[derive(Clone, Default)]
pub(super) struct SlowBody(Arc<AtomicBool>);

impl SlowBody {
    pub(super) fn was_slow(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request's body with a limit for the whole of it.
pub(super) struct TimelyBody {
    /// None once it has ended.
    inner: Option<Incoming>,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    slow: SlowBody,
    rest: Option<Streams>,
}

impl TimelyBody {
    /// With `rest` what its handler leaves of it is read by a task of its own. Dropping it would reset the stream of
    /// HTTP/2 (RFC 9113 section 8.1), and clients such as curl before 8.0 lose the answer then; it would close the
    /// connection of HTTP/1.1, and clients that send head and body apart, such as Python's, fail in writing the body
    /// and never read the answer.
    pub(super) fn new(inner: Incoming, limit: Duration, slow: SlowBody, rest: Option<Streams>) -> Self {
        Self { inner: Some(inner), limit, timer: None, slow, rest }
    }
}

impl Drop for TimelyBody {
    fn drop(&mut self) {
        let left = self.inner.take().filter(|inner| !inner.is_end_stream());
        if let (Some(left), Some(rest)) = (left, self.rest.take()) {
            rest.beside(read_away(left, self.limit));
        }
    }
}

impl HttpBody for TimelyBody {
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
        // From the first time that the handler waits for it.
        let limit = self.limit;
        let timer =
            self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        if timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.slow.0.store(true, Ordering::Relaxed);
        self.inner = None;
        Poll::Ready(Some(Err(TooSlow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

/// What goes on over one connection: requests under way, and when something last moved.
pub(super) struct Activity {
    began: Instant,
    in_flight: AtomicUsize,
    moved_ms: AtomicU64,
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), in_flight: AtomicUsize::new(0), moved_ms: AtomicU64::new(0) })
    }

    pub(super) fn request(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.moved();
        InFlight(Arc::clone(self))
    }

    fn moved(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_ms.fetch_max(now, Ordering::Relaxed);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// How long nothing has moved.
    pub(super) fn still_for(&self) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_millis(self.moved_ms.load(Ordering::Relaxed)))
    }
}

/// One request under way, until the last of its answer is taken.
pub(super) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.moved();
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An answer's body, which keeps its request under way.
pub(super) struct AnswerBody {
    pub(super) inner: Body,
    pub(super) in_flight: InFlight,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(context);
        if frame.is_ready() {
            self.in_flight.0.moved();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
