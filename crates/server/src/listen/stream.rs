//! A stream with a timeout for writes to a client that does not read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::body::Activity;
use super::reader::ReaderTimeout;

/// A stream that fails with [`io::ErrorKind::TimedOut`] when the peer reads nothing, or too slowly.
pub(super) struct WriteTimeoutStream<I> {
    inner: I,
    reader_timeout: ReaderTimeout,
    /// Timer that runs while a write is pending.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<I> WriteTimeoutStream<I> {
    pub(super) fn new(inner: I, limit: Duration) -> Self {
        Self { inner, reader_timeout: ReaderTimeout::new(limit), timer: None }
    }

    /// Tracks the result of a write; `bytes` returns the number of bytes written.
    fn track_write<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = &written {
            // The clock is read only after a write that was pending.
            if self.timer.take().is_some() {
                self.reader_timeout.read(Instant::now(), done.as_ref().map_or(0, bytes));
            }
            return written;
        }
        let until = self.reader_timeout.wait(Instant::now());
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer does not read, or reads too slowly",
        )))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.track_write(context, written, |count| *count)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, bytes);
        self.track_write(context, written, |count| *count)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.track_write(context, flushed, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.inner).poll_shutdown(context);
        self.track_write(context, closed, |()| 0)
    }
}

/// An HTTP/1.1 connection that records when bytes arrive. Bytes that arrive between requests belong to a request head.
pub(super) struct ActivityStream<I> {
    pub(super) inner: I,
    pub(super) activity: Arc<Activity>,
}

impl<I: AsyncRead + Unpin> AsyncRead for ActivityStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.received();
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for ActivityStream<I> {
    inbound::forward_writes!(inner);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn writes_to_slow_readers_succeed_and_to_stalled_readers_fail() {
        for (bytes_each, is_served) in [(9 << 10, true), (1, false)] {
            let (near, mut far) = tokio::io::duplex(4);
            let mut near = WriteTimeoutStream::new(near, Duration::from_secs(10));
            let reader = tokio::spawn(async move {
                let mut part = vec![0; bytes_each];
                for _ in 0..8 {
                    tokio::time::sleep(Duration::from_secs(9)).await;
                    far.read_exact(&mut part).await.unwrap();
                }
                far
            });
            let written = near.write_all(&vec![0; 8 * bytes_each + 4]).await;
            assert_eq!(written.is_ok(), is_served, "{bytes_each} bytes every 9 s: {written:?}");
            if is_served {
                let error = near.write_all(b"nobody reads this").await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            }
            drop(reader);
        }
    }
}
