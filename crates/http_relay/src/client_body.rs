//! Body of a client's request. The rest of the body is read and discarded if nothing needs it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;
use outbound::unwanted::drain_body;

use inbound::ServiceTasks;

/// Body of a client's request. When it is dropped, the remaining bytes are read and discarded, so that a client that is still
/// sending receives its response.
pub struct ClientBody {
    /// The body; `None` after it was dropped.
    inner: Option<Incoming>,
    /// Tasks and timeout for reading the rest. `None` for a request with `Expect` (RFC 9110 section 10.1.1): its client waits
    /// before it sends the body.
    rest: Option<(ServiceTasks, Duration)>,
}

impl ClientBody {
    /// Replaces the body of `request` with a [`ClientBody`]. `limit` is the timeout for reading the remaining bytes after a drop.
    pub fn of(request: Request<Incoming>, tasks: &ServiceTasks, limit: Duration) -> Request<Self> {
        let rest = (!request.headers().contains_key(EXPECT)).then(|| (tasks.clone(), limit));
        request.map(|inner| Self { inner: Some(inner), rest })
    }

    /// Creates an empty body.
    pub fn empty() -> Self {
        Self { inner: None, rest: None }
    }

    /// Stops reading the rest of the body.
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
                drain_body(left, limit).await;
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
