//! Body of a response from an upstream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;

use super::super::access_log::Entry;
use super::super::request_body::RequestBody;
use super::super::stall::{AnswerGuard, Stall, UploadStatus};
use super::super::target::Origin;
use super::http2::StreamSlot;
use super::idle::Pool;
use super::sender::Sender;

/// Timeout for a connection to become ready for the next request after its response was read.
const READY_WITHIN: Duration = Duration::from_secs(1);

/// A connection that returns to the pool once the body is read.
pub(super) struct GiveBack {
    pub(super) pool: Arc<Pool>,
    pub(super) origin: Arc<Origin>,
    pub(super) sender: SendRequest<RequestBody>,
}

impl GiveBack {
    /// Returns the connection immediately if it is ready. Otherwise waits until it is, for example when a response came before the
    /// whole request was sent.
    fn give(mut self) {
        if self.sender.is_ready() {
            return self.pool.keep(&self.origin, Sender::Http1(self.sender));
        }
        let tasks = self.pool.tasks().clone();
        tasks.spawn_bounded(async move {
            let _live = telemetry::tasks::guard("proxy-upstream-return");
            let ready = tokio::time::timeout(READY_WITHIN, self.sender.ready()).await;
            if matches!(ready, Ok(Ok(()))) {
                self.pool.keep(&self.origin, Sender::Http1(self.sender));
            }
        });
    }
}

/// Changes the trailers of a response before they are forwarded.
pub type TrailerFilter = Box<dyn Fn(&mut HeaderMap) + Send + Sync>;

/// Body of a response from an upstream. It fails if no data arrives within its timeout. After the last byte, its connection returns
/// to the pool; if it is dropped earlier, the connection is closed.
pub struct Relayed {
    body: Incoming,
    back: Option<GiveBack>,
    /// Slot on a shared connection, until the response has ended.
    stream: Option<StreamSlot>,
    /// Signals the upload timer that the response is in progress.
    answering: Option<AnswerGuard>,
    stall: Stall,
    /// The request's entry in the access log.
    entry: Option<Box<Entry>>,
    clean_trailers: Option<TrailerFilter>,
    /// Dropped at the end of the response.
    held: Option<Box<dyn Send + Sync>>,
}

impl Relayed {
    pub(super) fn new(
        body: Incoming,
        back: Option<GiveBack>,
        stream: Option<StreamSlot>,
        idle: Duration,
    ) -> Self {
        let stall = Stall::new(idle);
        let mut relayed = Self {
            body,
            back,
            stream,
            answering: None,
            stall,
            entry: None,
            clean_trailers: None,
            held: None,
        };
        if relayed.body.is_end_stream() {
            relayed.end();
        }
        relayed
    }

    /// Sets the log `entry` that counts the body, and the `clean_trailers` filter.
    pub fn logged(mut self, entry: Option<Box<Entry>>, clean_trailers: Option<TrailerFilter>) -> Self {
        (self.entry, self.clean_trailers) = (entry, clean_trailers);
        self
    }

    /// Tells `upload` that the response is in progress, until the body ends.
    pub fn beside(mut self, upload: &UploadStatus) -> Self {
        self.answering = (!self.body.is_end_stream()).then(|| upload.answering());
        self
    }

    /// Owns `held` until the response has ended or is dropped.
    pub fn holding(mut self, held: impl Send + Sync + 'static) -> Self {
        self.held = (!self.body.is_end_stream()).then(|| Box::new(held) as Box<dyn Send + Sync>);
        self
    }

    fn end(&mut self) {
        (self.stream, self.answering, self.held) = (None, None, None);
        if let Some(back) = self.back.take() {
            back.give();
        }
    }
}

impl Body for Relayed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Poll::Ready(mut frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            ready!(self.stall.poll(cx));
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        };
        self.stall.over();
        if let (Some(entry), Some(Ok(frame))) = (&self.entry, &frame)
            && let Some(data) = frame.data_ref()
        {
            entry.passed(data);
        }
        if let (Some(clean), Some(Ok(frame))) = (&self.clean_trailers, &mut frame)
            && let Some(trailers) = frame.trailers_mut()
        {
            clean(trailers);
        }
        if frame.is_none() || (self.body.is_end_stream() && matches!(frame, Some(Ok(_)))) {
            self.end();
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
