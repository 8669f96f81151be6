//! Body of a request to an upstream.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::access_log::Tee;
use super::client_body::ClientBody;
use super::stall::{ResponseTimer, UploadTimer};

/// Maximum bytes of all bodies together that are kept in memory for retries. Further bodies are not kept.
const KEPT_BYTES_MAX: usize = 64 << 20;
static KEPT_BYTES: Semaphore = Semaphore::const_new(KEPT_BYTES_MAX);

/// A body that was read completely, so that it can be sent again.
#[derive(Clone)]
struct BufferedBody {
    data: Bytes,
    trailers: Option<HeaderMap>,
    is_sent: bool,
    /// Permit for the memory of this body; `None` if the caller limits the memory of kept bodies.
    _permit: Option<Arc<SemaphorePermit<'static>>>,
}

/// Body of a request to an upstream. It fails with an error if no data arrives within its timeout.
pub struct RequestBody {
    body: ClientBody,
    tee: Option<Arc<Tee>>,
    upload: UploadTimer,
    /// Function that removes trailers that are not forwarded.
    clean_trailers: fn(&mut HeaderMap),
    /// The whole body, if it was read in advance. Replaces `body`.
    buffered: Option<BufferedBody>,
}

impl RequestBody {
    /// Wraps `body`: `tee` counts its bytes, `upload` limits the wait for data, and `clean_trailers` changes the trailers.
    pub fn new(
        body: ClientBody,
        tee: Option<Arc<Tee>>,
        upload: UploadTimer,
        clean_trailers: fn(&mut HeaderMap),
    ) -> Self {
        Self { body, tee, upload, clean_trailers, buffered: None }
    }

    /// Returns an empty body for a request that the proxy itself sends.
    pub fn none(limit: Duration) -> Self {
        let (upload, _) = UploadTimer::within(limit);
        Self::new(ClientBody::empty(), None, upload, |_| {})
    }

    /// Reads the body now and keeps it, if its length is known and at most `most` bytes. A request with a kept body can be sent
    /// again.
    ///
    /// # Errors
    /// The client stopped sending, or sent an invalid body.
    pub async fn keep(&mut self, most: usize) -> io::Result<()> {
        let length = self.size_hint().exact().filter(|length| (1..=most as u64).contains(length));
        let Some(length) = length.and_then(|length| u32::try_from(length).ok()) else { return Ok(()) };
        if self.buffered.is_some() {
            return Ok(());
        }
        let Ok(permit) = KEPT_BYTES.try_acquire_many(length) else { return Ok(()) };
        if let Some(buffered) = self.read_whole(length as usize).await? {
            self.buffered = Some(BufferedBody { _permit: Some(Arc::new(permit)), ..buffered });
        }
        Ok(())
    }

    /// Reads the whole body now and keeps it, even if its length is not known. Returns false if the body has more than `most`
    /// bytes; then a part of it is lost. The caller limits the memory of all such bodies.
    ///
    /// # Errors
    /// As [`Self::keep`].
    pub async fn buffer(&mut self, most: usize) -> io::Result<bool> {
        if let Some(buffered) = &self.buffered {
            return Ok(buffered.data.len() <= most);
        }
        if self.size_hint().lower() > most as u64 {
            return Ok(false);
        }
        self.buffered = self.read_whole(most).await?;
        Ok(self.buffered.is_some())
    }

    /// Returns the body if it is in memory: after [`Self::keep`], [`Self::buffer`] or [`Self::replace`].
    pub fn buffered(&self) -> Option<&Bytes> {
        self.buffered.as_ref().map(|buffered| &buffered.data)
    }

    /// Replaces the body. Trailers of a kept body stay.
    pub fn replace(&mut self, data: Bytes) {
        let trailers = self.buffered.take().and_then(|buffered| buffered.trailers);
        // The rest of the client's body is read and discarded.
        self.body = ClientBody::empty();
        let is_sent = data.is_empty();
        self.buffered = Some(BufferedBody { data, trailers, is_sent, _permit: None });
    }

    /// Reads the body to its end; `None` if it has more than `most` bytes.
    async fn read_whole(&mut self, most: usize) -> io::Result<Option<BufferedBody>> {
        let (mut data, mut trailers) = (BytesMut::new(), None);
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await {
            match frame?.into_data() {
                Ok(chunk) if data.len() + chunk.len() > most => return Ok(None),
                Ok(chunk) => data.extend_from_slice(&chunk),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        let is_sent = data.is_empty();
        Ok(Some(BufferedBody { data: data.freeze(), trailers, is_sent, _permit: None }))
    }

    /// Returns a copy to send the request again with; `None` if the body is neither empty nor kept.
    pub fn copy(&self) -> Option<Self> {
        let buffered = self.buffered.clone().filter(|buffered| !buffered.is_sent);
        (buffered.is_some() || self.is_end_stream()).then(|| Self {
            body: ClientBody::empty(),
            // The bytes were already counted when they arrived from the client.
            tee: None,
            upload: self.upload.restarted(),
            clean_trailers: self.clean_trailers,
            buffered,
        })
    }

    /// Starts the timeout of the response's header.
    pub fn awaited(&self) -> ResponseTimer {
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
        if let Some(buffered) = &mut self.buffered {
            let frame = match std::mem::replace(&mut buffered.is_sent, true) {
                false => Some(Frame::data(std::mem::take(&mut buffered.data))),
                true => buffered.trailers.take().map(Frame::trailers),
            };
            self.upload.record_progress();
            return Poll::Ready(frame.map(Ok));
        }
        let Poll::Ready(mut frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            ready!(self.upload.poll(cx));
            self.body.give_up();
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        };
        match &frame {
            Some(Err(_)) => self.upload.mark_failed(),
            _ => self.upload.record_progress(),
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
        self.buffered.as_ref().map_or_else(
            || self.body.is_end_stream(),
            |buffered| buffered.is_sent && buffered.trailers.is_none(),
        )
    }

    fn size_hint(&self) -> SizeHint {
        match &self.buffered {
            Some(buffered) => SizeHint::with_exact(buffered.data.len() as u64),
            None => self.body.size_hint(),
        }
    }
}
