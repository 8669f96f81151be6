//! Body of a response from an upstream.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;

use super::super::access_log::Entry;
use super::super::stall::{ResponseGuard, StallTimeout, UploadStatus};
use super::super::target::Origin;
use super::http2::StreamSlot;
use super::idle::Pool;
use super::sender::{Http1, Sender};

/// Timeout for a connection to become ready for the next request after its response was read.
const READY_WITHIN: Duration = Duration::from_secs(1);

/// A connection that returns to the pool once the body is read.
pub(super) struct ReturningConnection {
    pub(super) pool: Arc<Pool>,
    pub(super) origin: Arc<Origin>,
    pub(super) sender: Http1,
}

impl ReturningConnection {
    /// Puts the connection back into the pool. The connection may not be ready yet, for example because the response arrived before
    /// the whole request was sent. A task then waits until it is ready, and the returned receiver completes when the task ends.
    fn return_to_pool(mut self) -> Option<oneshot::Receiver<()>> {
        if self.sender.sender.is_ready() {
            self.pool.keep(&self.origin, Sender::Http1(self.sender));
            return None;
        }
        let (waits, waited) = oneshot::channel();
        let tasks = self.pool.tasks().clone();
        tasks.spawn_bounded(async move {
            let _live = telemetry::tasks::guard("proxy-upstream-return");
            let ready = tokio::time::timeout(READY_WITHIN, self.sender.sender.ready()).await;
            if matches!(ready, Ok(Ok(()))) {
                self.pool.keep(&self.origin, Sender::Http1(self.sender));
            }
            drop(waits);
        });
        Some(waited)
    }
}

/// Filter that changes the body and the trailers of a response while they are forwarded.
pub trait BodyFilter: Send + Sync {
    /// Returns whether the filter leaves the length of the body unchanged.
    fn keeps_length(&self) -> bool;

    /// Adds the next bytes of the body. Called only after [`Self::pull`] has returned `None`.
    fn push(&mut self, data: Bytes);

    /// Ends the body: no more bytes will be pushed.
    fn finish(&mut self);

    /// Called before each [`Self::pull`]. Returns `Pending` if the filter has done its maximum work of one turn; the filter then
    /// wakes the task for the next turn.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// Returns the next bytes to forward; `None` if more must be pushed first, or at the end.
    ///
    /// # Errors
    /// The response must be cut off.
    fn pull(&mut self) -> io::Result<Option<Bytes>>;

    /// Returns bytes that the filter held back, once the upstream has paused long enough. Called while the upstream has no data.
    ///
    /// # Errors
    /// As [`Self::pull`].
    fn poll_held_back(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>>;

    /// Returns whether all of an ended body has been pulled.
    fn is_over(&self) -> bool;

    /// Removes or changes trailers before they are forwarded.
    fn trailers(&mut self, trailers: &mut HeaderMap);

    /// Returns the number of values that were removed from the response so far.
    fn removed(&self) -> u64;
}

/// Result of reading a whole response body.
#[derive(Debug)]
pub enum Buffered {
    /// The whole body was read into memory.
    Whole {
        /// Number of values that the filter removed.
        removed: u64,
    },
    /// The body has more bytes than allowed. A part of it is lost.
    TooLarge,
    /// The upstream broke the connection, or the filter cut off the body.
    Broken(io::Error),
}

/// Reason in the log of a response that its filter cut off.
const CUT: &str = "response-filter";

/// Body of a response from an upstream. It fails if no data arrives within its timeout. After the last byte, its connection returns
/// to the pool; if it is dropped earlier, the connection is closed.
pub struct UpstreamResponseBody {
    body: Source,
    back: Option<ReturningConnection>,
    /// Completes when the task that waits for the connection to become ready has ended. `None` if there is no such task.
    returning: Option<oneshot::Receiver<()>>,
    /// Slot on a shared connection, until the response has ended.
    stream: Option<StreamSlot>,
    /// Signals the upload timer that the response is in progress.
    answering: Option<ResponseGuard>,
    stall: StallTimeout,
    /// The request's entry in the access log.
    entry: Option<Box<Entry>>,
    filter: Option<Box<dyn BodyFilter>>,
    /// Trailers that follow the last bytes of the filter.
    trailers: Option<HeaderMap>,
    /// Whether the whole body has entered the filter.
    is_read: bool,
    /// Number of values that the filter removed.
    removed: u64,
    /// Value that is dropped at the end of the response ([`Self::with_guard`]).
    held: Option<Box<dyn Send + Sync>>,
}

impl UpstreamResponseBody {
    pub(super) fn new(
        body: Incoming,
        back: Option<ReturningConnection>,
        stream: Option<StreamSlot>,
        idle: Duration,
    ) -> Self {
        let stall = StallTimeout::new(idle);
        let mut relayed = Self {
            body: Source::Incoming(body),
            back,
            returning: None,
            stream,
            answering: None,
            stall,
            entry: None,
            filter: None,
            trailers: None,
            is_read: false,
            removed: 0,
            held: None,
        };
        if relayed.body.is_end_stream() {
            relayed.end();
        }
        relayed
    }

    /// Sets the log `entry` that counts the body, and the `filter` that it passes.
    pub fn logged(mut self, entry: Option<Box<Entry>>, filter: Option<Box<dyn BodyFilter>>) -> Self {
        (self.entry, self.filter) = (entry, filter);
        self.record_removed();
        if self.body.is_end_stream() {
            self.filter = None;
            self.complete();
        }
        self
    }

    /// Marks the response as in progress in `upload`, until the body ends.
    pub fn with_upload(mut self, upload: &UploadStatus) -> Self {
        self.answering = (!self.body.is_end_stream()).then(|| upload.answering());
        self
    }

    /// Stores `held` until the response has ended or is dropped.
    pub fn with_guard(mut self, held: impl Send + Sync + 'static) -> Self {
        self.held = (!self.body.is_end_stream()).then(|| Box::new(held) as Box<dyn Send + Sync>);
        self
    }

    /// Reads the whole body now, to forward it later, if it has at most `most` bytes and arrives within `within`. The connection is
    /// then free for the next request. Otherwise returns false, and the rest of the body is lost.
    pub async fn keep(&mut self, most: usize, within: Duration) -> bool {
        tokio::time::timeout(within, self.read_whole(most)).await.unwrap_or(false)
    }

    async fn read_whole(&mut self, most: usize) -> bool {
        let whole = matches!(self.read_to_end(most).await, Buffered::Whole { .. });
        if let Some(returning) = self.returning.take().filter(|_| whole) {
            // The task sends nothing: it drops the sender when it ends.
            let _ = returning.await;
        }
        whole
    }

    /// Reads the whole body now through `filter`, to forward it later, if it has at most `most` bytes.
    pub async fn buffer(&mut self, filter: Option<Box<dyn BodyFilter>>, most: usize) -> Buffered {
        if let Source::InMemory(buffered) = &self.body
            && filter.is_none()
        {
            let bytes = buffered.data.as_ref().map_or(0, Bytes::len);
            return if bytes <= most { Buffered::Whole { removed: 0 } } else { Buffered::TooLarge };
        }
        self.filter = filter;
        self.read_to_end(most).await
    }

    async fn read_to_end(&mut self, most: usize) -> Buffered {
        let (mut data, mut trailers) = (BytesMut::new(), None);
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await {
            match frame.map(Frame::into_data) {
                Ok(Ok(chunk)) if data.len() + chunk.len() <= most => data.extend_from_slice(&chunk),
                Ok(Ok(_)) => return Buffered::TooLarge,
                Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
                Err(error) => return Buffered::Broken(error),
            }
        }
        let data = Some(data.freeze()).filter(|data| !data.is_empty());
        self.body = Source::InMemory(Box::new(BufferedBody { data, trailers }));
        (self.filter, self.trailers, self.is_read) = (None, None, false);
        Buffered::Whole { removed: self.removed }
    }

    /// Returns the body if it was read into memory; `None` for an empty body.
    pub fn buffered(&self) -> Option<&Bytes> {
        match &self.body {
            Source::InMemory(buffered) => buffered.data.as_ref(),
            Source::Incoming(_) => None,
        }
    }

    /// Replaces the body. Trailers of a kept body stay. The connection of a body that was not read is closed.
    pub fn replace(&mut self, data: Bytes) {
        let trailers = match &mut self.body {
            Source::InMemory(buffered) => buffered.trailers.take(),
            Source::Incoming(_) => None,
        };
        (self.back, self.returning, self.stream, self.answering, self.held) = (None, None, None, None, None);
        (self.filter, self.trailers, self.is_read) = (None, None, false);
        let data = Some(data).filter(|data| !data.is_empty());
        self.body = Source::InMemory(Box::new(BufferedBody { data, trailers }));
    }

    fn complete(&mut self) {
        self.entry.iter_mut().for_each(|entry| entry.complete());
    }

    fn record_removed(&mut self) {
        let Some(filter) = &self.filter else { return };
        self.removed = filter.removed();
        self.entry.iter_mut().for_each(|entry| entry.removed(self.removed));
    }

    /// Returns the next frame that leaves the filter; `Pending` if more must enter it first.
    fn poll_filter(&mut self) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(filter) = &mut self.filter else { return Poll::Pending };
        let (pulled, is_over, removed) = (filter.pull(), filter.is_over(), filter.removed());
        self.removed = removed;
        self.entry.iter_mut().for_each(|entry| entry.removed(removed));
        match pulled {
            Ok(Some(data)) => {
                self.entry.iter().for_each(|entry| entry.passed(&data));
                // A caller that knows the length does not poll for the end of the body.
                if self.is_read && is_over && self.trailers.is_none() {
                    self.filter = None;
                    self.complete();
                }
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Ok(None) if self.is_read => {
                self.filter = None;
                self.complete();
                Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Some(Err(self.cut(error)))),
        }
    }

    /// Returns the bytes that the filter held back, after a pause of the upstream.
    fn poll_held_back(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Frame<Bytes>>> {
        let Some(filter) = &mut self.filter else { return Poll::Pending };
        let held = ready!(filter.poll_held_back(cx));
        self.record_removed();
        Poll::Ready(match held {
            Ok(data) => {
                self.entry.iter().for_each(|entry| entry.passed(&data));
                Ok(Frame::data(data))
            }
            Err(error) => Err(self.cut(error)),
        })
    }

    /// Records that the filter cuts off the response.
    fn cut(&mut self, error: io::Error) -> io::Error {
        tracing::warn!(%error, "a response was cut off");
        self.entry.iter_mut().for_each(|entry| entry.set_refusal_reason(CUT));
        error
    }

    /// Passes a frame to the filter; returns the frame if there is no filter.
    fn feed_filter(
        &mut self,
        frame: Option<Result<Frame<Bytes>, hyper::Error>>,
    ) -> Option<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(filter) = &mut self.filter else { return Some(frame) };
        match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    filter.push(data);
                    if self.body.is_end_stream() {
                        filter.finish();
                        self.is_read = true;
                    }
                }
                Err(frame) => {
                    self.trailers = frame.into_trailers().ok();
                    self.trailers.iter_mut().for_each(|trailers| filter.trailers(trailers));
                    filter.finish();
                    self.is_read = true;
                }
            },
            Some(Err(error)) => return Some(Some(Err(error))),
            None => {
                filter.finish();
                self.is_read = true;
            }
        }
        None
    }

    fn end(&mut self) {
        (self.stream, self.answering, self.held) = (None, None, None);
        if let Some(back) = self.back.take() {
            self.returning = back.return_to_pool();
        }
    }
}

/// Source of a body's frames: the upstream connection, or a body that was already read.
enum Source {
    Incoming(Incoming),
    InMemory(Box<BufferedBody>),
}

/// A body that was read before it is forwarded.
struct BufferedBody {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for Source {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Self::Incoming(body) => Pin::new(body).poll_frame(cx),
            Self::InMemory(buffered) => {
                let data = buffered.data.take().map(Frame::data);
                Poll::Ready(data.or_else(|| buffered.trailers.take().map(Frame::trailers)).map(Ok))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Incoming(body) => body.is_end_stream(),
            Self::InMemory(buffered) => buffered.data.is_none() && buffered.trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Incoming(body) => body.size_hint(),
            Self::InMemory(buffered) => {
                SizeHint::with_exact(buffered.data.as_ref().map_or(0, Bytes::len) as u64)
            }
        }
    }
}

impl Body for UpstreamResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            if let Some(filter) = &mut self.filter {
                ready!(filter.poll_turn(cx));
            }
            if let Poll::Ready(frame) = self.poll_filter() {
                return Poll::Ready(frame);
            }
            if self.is_read {
                return Poll::Ready(None);
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                if let Poll::Ready(held) = self.poll_held_back(cx) {
                    return Poll::Ready(Some(held));
                }
                ready!(self.stall.poll(cx));
                return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
            };
            self.stall.record_progress();
            let is_over = frame.is_none() || (self.body.is_end_stream() && matches!(frame, Some(Ok(_))));
            if is_over {
                self.end();
            }
            if let Some(frame) = self.feed_filter(frame) {
                if let (Some(entry), Some(Ok(frame))) = (&self.entry, &frame)
                    && let Some(data) = frame.data_ref()
                {
                    entry.passed(data);
                }
                if is_over {
                    self.complete();
                }
                return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.filter.is_none() && (self.is_read || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.filter {
            Some(filter) if !filter.keeps_length() => SizeHint::default(),
            _ => self.body.size_hint(),
        }
    }
}
