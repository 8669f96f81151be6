//! HTTP/1 connections that reject ambiguous messages. Data that [`framing`](super::framing) finds ambiguous never reaches the HTTP
//! library: a client gets a 400 response, and an upstream's response counts as broken.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use hyper::HeaderMap;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::fields::clean_trailers;
use super::framing::{Framing, FramingAmbiguity, Messages, Progress};
use super::next_head::{HeadTimeout, HeadTimeouts, HeadTimer, WaitPhase};

/// A byte that is invalid in every header, so that the library rejects the message.
const NO_MESSAGE: u8 = 0;
/// Maximum bytes that are read while an upgrade is undecided.
const HELD_BYTES: usize = 8 << 10;

/// State of the requests and responses on a connection, shared with the connection's stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exchanges(Arc<Mutex<ExchangesState>>);

#[derive(Debug, Default)]
struct ExchangesState {
    /// Number of requests with a response.
    answered: u64,
    /// Whether the last response switched protocols.
    has_changed: bool,
    waiting: Option<Waker>,
    /// Responses that are not completely written, in order.
    answers: VecDeque<ResponseState>,
}

#[derive(Debug, Default)]
struct ResponseState {
    is_to_head: bool,
    trailers: Option<Bytes>,
}

impl Exchanges {
    /// Records the arrival of a request.
    pub(crate) fn begin_request(&self, is_head: bool) {
        self.0.lock().answers.push_back(ResponseState { is_to_head: is_head, trailers: None });
    }

    /// Records the response of a request. The response may switch protocols.
    pub(crate) fn answered(&self, has_changed: bool) {
        let mut state = self.0.lock();
        state.answered += 1;
        state.has_changed = has_changed;
        if let Some(waiting) = state.waiting.take() {
            waiting.wake();
        }
    }

    /// Sets the trailers of the current response.
    pub(crate) fn trailers(&self, mut trailers: HeaderMap) {
        clean_trailers(&mut trailers);
        let mut lines = Vec::new();
        for (name, value) in &trailers {
            lines.extend_from_slice(name.as_str().as_bytes());
            lines.extend_from_slice(b": ");
            lines.extend_from_slice(value.as_bytes());
            lines.extend_from_slice(b"\r\n");
        }
        if let Some(answer) = self.0.lock().answers.back_mut() {
            answer.trailers = Some(lines.into());
        }
    }

    /// Returns whether the response to request `number` (from 1) switched protocols; `None` before there is a response.
    fn changed(&self, number: u64, waker: &Waker) -> Option<bool> {
        let mut state = self.0.lock();
        if state.answered >= number {
            return Some(state.answered == number && state.has_changed);
        }
        state.waiting = Some(waker.clone());
        None
    }

    /// Returns whether a request still waits for its complete response.
    fn is_under_way(&self) -> bool {
        !self.0.lock().answers.is_empty()
    }

    fn is_to_head(&self) -> bool {
        self.0.lock().answers.front().is_some_and(|answer| answer.is_to_head)
    }

    fn take_trailers(&self) -> Bytes {
        let mut state = self.0.lock();
        state.answers.front_mut().and_then(|answer| answer.trailers.take()).unwrap_or_default()
    }

    fn written(&self) {
        self.0.lock().answers.pop_front();
    }
}

/// State of reading a stream of messages. Reading stops at the first ambiguous message.
#[derive(Debug)]
struct Reading {
    framing: Framing,
    /// Number of complete messages.
    ended: u64,
    /// Reason why reading has stopped, if it has.
    refused: Option<FramingAmbiguity>,
}

impl Reading {
    fn new(messages: Messages) -> Self {
        Self { framing: Framing::new(messages), ended: 0, refused: None }
    }

    /// Checks the bytes in `buf` after the first `start` bytes. Removes ambiguous bytes and makes their header invalid, so that the
    /// library rejects it; an ambiguous body fails at the next read. Returns the end of the first request that asks for a protocol
    /// upgrade.
    fn check_read(&mut self, buf: &mut ReadBuf<'_>, start: usize) -> io::Result<Option<usize>> {
        let mut at = start;
        while at < buf.filled().len() {
            let in_head = self.framing.in_head();
            match self.framing.advance(&buf.filled()[at..]) {
                Ok(Progress::More) => break,
                Ok(Progress::Head(used) | Progress::LastChunk(used)) => at += used,
                Ok(Progress::End(used)) => {
                    at += used;
                    self.ended += 1;
                    if self.framing.requests_upgrade() {
                        return Ok(Some(at));
                    }
                }
                Err(ambiguous) => {
                    tracing::info!(%ambiguous, "rejected an ambiguous HTTP/1 message");
                    self.refused = Some(ambiguous);
                    buf.set_filled(at);
                    if in_head {
                        buf.put_slice(&[NO_MESSAGE]);
                    }
                    return if at > start || in_head { Ok(None) } else { Err(refused(ambiguous)) };
                }
            }
        }
        Ok(None)
    }
}

fn refused(ambiguous: FramingAmbiguity) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, ambiguous)
}

/// A client's connection. [`Reading`] checks the requests. The HTTP library omits trailers that were not announced or not
/// requested; this stream adds them to the responses.
#[derive(Debug)]
pub(crate) struct ClientStream<S> {
    stream: S,
    exchanges: Exchanges,
    reading: Reading,
    /// Whether a protocol upgrade request waits for its response. The bytes that follow the request are in `held_back`.
    is_open: bool,
    held_back: BytesMut,
    next_head: HeadTimer,
    writing: Framing,
    /// Number of bytes at the start of the next write that were already parsed.
    parsed: usize,
    /// Whether trailers follow these bytes.
    at_last_chunk: bool,
    trailers: Bytes,
}

impl<S> ClientStream<S> {
    pub(crate) fn new(stream: S, exchanges: Exchanges, timeouts: HeadTimeouts) -> Self {
        Self {
            stream,
            exchanges,
            next_head: HeadTimer::new(timeouts),
            reading: Reading::new(Messages::Requests),
            is_open: false,
            held_back: BytesMut::new(),
            writing: Framing::new(Messages::Responses),
            parsed: 0,
            at_last_chunk: false,
            trailers: Bytes::new(),
        }
    }

    /// Parses more of the next write, up to a position where trailers may have to be inserted.
    fn parse_written(&mut self, slices: &[IoSlice<'_>]) {
        let mut before = self.parsed;
        for slice in slices {
            let some = before.min(slice.len());
            before -= some;
            self.parse_slice(&slice[some..]);
        }
    }

    fn parse_slice(&mut self, mut bytes: &[u8]) {
        while !self.at_last_chunk && !bytes.is_empty() {
            if self.writing.in_head() {
                self.writing.set_response_to_head(self.exchanges.is_to_head());
            }
            let used = match self.writing.advance(bytes) {
                // Output of the HTTP library is well-formed.
                Ok(Progress::More) | Err(_) => bytes.len(),
                Ok(Progress::Head(used)) => used,
                Ok(Progress::LastChunk(used)) => {
                    self.at_last_chunk = true;
                    used
                }
                Ok(Progress::End(used)) => {
                    self.exchanges.written();
                    used
                }
            };
            self.parsed += used;
            bytes = &bytes[used..];
        }
    }

    fn record_written(&mut self, count: usize) {
        self.parsed -= count;
        if self.parsed == 0 && std::mem::take(&mut self.at_last_chunk) {
            self.trailers = self.exchanges.take_trailers();
        }
    }
}

impl<S: AsyncRead + Unpin> ClientStream<S> {
    /// Reads more into `into`. An idle timeout counts as the end of the stream; a late header is an error.
    fn poll_more(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, into);
        if polled.is_ready() {
            return polled;
        }
        let framing = &self.reading.framing;
        if !framing.in_head() || self.exchanges.is_under_way() {
            self.next_head.stop();
            return Poll::Pending;
        }
        let awaited = if framing.has_begun_head() { WaitPhase::Head } else { WaitPhase::Request };
        match ready!(self.next_head.poll(cx, awaited)) {
            HeadTimeout(WaitPhase::Request) => Poll::Ready(Ok(())),
            HeadTimeout(WaitPhase::Head) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Reads while an upgrade is undecided. The bytes are held back; only the end of the stream is passed on immediately.
    fn poll_hold_back(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.held_back.is_empty() {
            return Poll::Pending;
        }
        let mut bytes = [0; HELD_BYTES];
        let mut read = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
        if read.filled().is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.held_back.extend_from_slice(read.filled());
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(ambiguous) = this.reading.refused {
            return Poll::Ready(Err(refused(ambiguous)));
        }
        if this.is_open {
            match this.exchanges.changed(this.reading.ended, cx.waker()) {
                None => return this.poll_hold_back(cx),
                Some(true) => this.reading.framing.close(),
                Some(false) => {}
            }
            this.is_open = false;
        }
        let start = into.filled().len();
        if this.held_back.is_empty() {
            ready!(this.poll_more(cx, into))?;
        } else {
            let some = this.held_back.len().min(into.remaining());
            into.put_slice(&this.held_back.split_to(some));
        }
        let ended = this.reading.ended;
        let change = this.reading.check_read(into, start)?;
        if this.reading.ended != ended || !this.reading.framing.in_head() {
            this.next_head.stop();
        }
        if let Some(end) = change {
            this.is_open = true;
            // Insert before the bytes that are already held back.
            let mut held_back = BytesMut::from(&into.filled()[end..]);
            held_back.extend_from_slice(&this.held_back);
            this.held_back = held_back;
            into.set_filled(end);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> ClientStream<S> {
    /// Writes the pending trailers, if any.
    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.trailers.is_empty() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.trailers))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.trailers.advance(count);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_trailers(cx))?;
        this.parse_written(&[IoSlice::new(bytes)]);
        let count = ready!(Pin::new(&mut this.stream).poll_write(cx, &bytes[..this.parsed]))?;
        this.record_written(count);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_trailers(cx))?;
        this.parse_written(slices);
        let stream = Pin::new(&mut this.stream);
        let count = if this.at_last_chunk {
            let mut left = this.parsed;
            let upto = slices.iter().map_while(|slice| {
                let some = left.min(slice.len());
                left -= some;
                (some > 0 || slice.is_empty()).then(|| IoSlice::new(&slice[..some]))
            });
            ready!(stream.poll_write_vectored(cx, &upto.collect::<Vec<_>>()))?
        } else {
            ready!(stream.poll_write_vectored(cx, slices))?
        };
        this.record_written(count);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_trailers(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_trailers(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A connection to an upstream. Its responses are checked by [`Reading`].
#[derive(Debug)]
pub(crate) struct UpstreamStream<S> {
    stream: S,
    reading: Reading,
    /// Parser of the sent requests: responses to HEAD have no body.
    requests: Framing,
}

impl<S> UpstreamStream<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            reading: Reading::new(Messages::Responses),
            requests: Framing::new(Messages::Requests),
        }
    }

    fn record_written(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.requests.advance(bytes) {
                Ok(Progress::More) | Err(_) => return,
                Ok(Progress::Head(used) | Progress::LastChunk(used) | Progress::End(used)) => {
                    bytes = &bytes[used..];
                }
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for UpstreamStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(ambiguous) = this.reading.refused {
            return Poll::Ready(Err(refused(ambiguous)));
        }
        let start = into.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, into))?;
        if this.reading.framing.in_head() {
            this.reading.framing.set_response_to_head(this.requests.is_head());
        }
        Poll::Ready(this.reading.check_read(into, start).map(drop))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for UpstreamStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        if !self.reading.framing.is_opaque() {
            self.record_written(&bytes[..count]);
        }
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
        let mut left = if self.reading.framing.is_opaque() { 0 } else { count };
        for slice in slices {
            let some = left.min(slice.len());
            self.record_written(&slice[..some]);
            left -= some;
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
