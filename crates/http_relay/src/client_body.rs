//! The body of a client's request, which is read to its end even where nothing of it is wanted.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;
use outbound::unwanted::read_away;

use inbound::ServiceTasks;

/// The body of a client's request. What is left of it when it is dropped is read and discarded, so that a client that is still
/// sending gets its answer.
pub struct ClientBody {
    /// The body, until it is dropped.
    inner: Option<Incoming>,
    /// Who reads what is left, and how long; nobody for a client that asked first whether to send it (RFC 9110 section
    /// 10.1.1), and is not told to.
    rest: Option<(ServiceTasks, Duration)>,
}

impl ClientBody {
    /// Takes the body of `request`. `limit` is the timeout of reading what is left of it when it is dropped.
    pub fn of(request: Request<Incoming>, tasks: &ServiceTasks, limit: Duration) -> Request<Self> {
        let rest = (!request.headers().contains_key(EXPECT)).then(|| (tasks.clone(), limit));
        request.map(|inner| Self { inner: Some(inner), rest })
    }

    /// An empty body.
    pub(crate) fn empty() -> Self {
        Self { inner: None, rest: None }
    }

    /// Stops waiting for the rest of the body.
    pub(crate) fn give_up(&mut self) {
        self.rest = None;
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        let left = self.inner.take().filter(|inner| !inner.is_end_stream());
        if let (Some(left), Some((tasks, limit))) = (left, self.rest.take()) {
            tasks.spawn_bounded(async move {
                let _live = telemetry::tasks::guard("proxy-unwanted-body");
                read_away(left, limit).await;
            });
        }
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        let polled = Pin::new(inner).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.inner = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
