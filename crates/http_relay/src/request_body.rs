//! Body of a request to an upstream.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};

use super::access_log::Tee;
use super::client_body::ClientBody;
use super::stall::{AnswerTimer, UploadTimer};

/// Body of a request to an upstream. It fails with an error if no data arrives within its timeout.
pub struct RequestBody {
    body: ClientBody,
    tee: Option<Arc<Tee>>,
    upload: UploadTimer,
    /// Removes trailers that are not forwarded.
    clean_trailers: fn(&mut HeaderMap),
}

impl RequestBody {
    /// Wraps `body`: `tee` counts its bytes, `upload` limits the wait for data, and `clean_trailers` changes the trailers.
    pub fn new(
        body: ClientBody,
        tee: Option<Arc<Tee>>,
        upload: UploadTimer,
        clean_trailers: fn(&mut HeaderMap),
    ) -> Self {
        Self { body, tee, upload, clean_trailers }
    }

    /// Returns an empty body for a request that the proxy itself sends.
    pub fn none(limit: Duration) -> Self {
        let (upload, _) = UploadTimer::within(limit);
        Self::new(ClientBody::empty(), None, upload, |_| {})
    }

    /// Returns a new empty body to retry the request with; `None` if this body is not empty.
    pub fn empty_copy(&self) -> Option<Self> {
        self.is_end_stream().then(|| Self {
            body: ClientBody::empty(),
            tee: self.tee.clone(),
            upload: self.upload.restarted(),
            clean_trailers: self.clean_trailers,
        })
    }

    /// Starts the timeout of the response's header.
    pub fn awaited(&self) -> AnswerTimer {
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
