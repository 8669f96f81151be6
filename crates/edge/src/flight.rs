//! The stream below TLS. It holds back the server's first flight until the flight is complete, and then sends the whole flight.
//!
//! If the signature fails, the stream sends a plaintext alert instead of the flight. The library's own alert would be an encrypted
//! close_notify after a ServerHello, which the client cannot read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::alert::HandshakeAlert;

/// Maximum bytes that are held back: the longest chain and its staple. A longer flight is sent without delay.
const HELD_MAX: usize = 96 << 10;

/// Builds a record with a fatal, unencrypted alert (RFC 8446 sections 5.1 and 6).
fn record(alert: u8) -> [u8; 7] {
    [21, 3, 3, 0, 2, 2, alert]
}

/// The stream below TLS, during the handshake and after it.
#[derive(Debug)]
pub(super) struct Flight<S> {
    stream: S,
    held_back: Vec<u8>,
    /// Bytes of `held_back` that are already written.
    written: usize,
    alert: HandshakeAlert,
    /// Whether part of the held flight has already been sent to the client.
    is_partly_sent: bool,
    /// Whether the handshake is complete.
    is_open: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Flight<S> {
    pub(super) fn new(stream: S, alert: HandshakeAlert) -> Self {
        Self { stream, held_back: Vec::new(), written: 0, alert, is_partly_sent: false, is_open: false }
    }

    /// Ends the handshake: from now on nothing is held back.
    pub(super) fn open(&mut self) {
        self.is_open = true;
    }

    fn poll_write_held_back(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.held_back.len() {
            let written = Pin::new(&mut self.stream).poll_write(context, &self.held_back[self.written..]);
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        self.written = 0;
        if self.is_open {
            self.held_back = Vec::new();
        } else {
            self.held_back.clear();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Flight<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A read means that the TLS library has written its whole flight.
        if !self.held_back.is_empty() {
            ready!(self.poll_write_held_back(context))?;
            self.is_partly_sent = false;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Flight<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.is_open && self.held_back.len() + bytes.len() <= HELD_MAX {
            self.held_back.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        if !self.held_back.is_empty() {
            ready!(self.poll_write_held_back(context))?;
        }
        self.is_partly_sent = true;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_open {
            ready!(self.poll_write_held_back(context))?;
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(alert) = self.alert.get()
            && !self.is_partly_sent
            && !self.is_open
        {
            self.held_back = record(alert).to_vec();
            self.is_open = true;
        }
        ready!(self.poll_write_held_back(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::super::alert::INTERNAL_ERROR;
    use super::*;

    #[tokio::test]
    async fn held_flight_is_sent_before_a_read_and_replaced_by_an_alert_on_failure() {
        let (ours, mut theirs) = duplex(1 << 20);
        let alert = HandshakeAlert::default();
        let mut flight = Flight::new(ours, alert.clone());
        flight.write_all(b"hello retry").await.unwrap();
        flight.flush().await.unwrap();
        theirs.write_all(b"again").await.unwrap();
        let mut from_client = [0; 5];
        flight.read_exact(&mut from_client).await.unwrap();
        let mut to_client = [0; 11];
        theirs.read_exact(&mut to_client).await.unwrap();
        assert_eq!((&from_client, &to_client), (b"again", b"hello retry"));

        flight.write_all(b"server hello").await.unwrap();
        alert.set(INTERNAL_ERROR);
        flight.shutdown().await.unwrap();
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, [21, 3, 3, 0, 2, 2, 80]);
    }

    #[tokio::test]
    async fn flight_above_the_size_limit_is_sent_at_once_and_not_replaced() {
        let (ours, mut theirs) = duplex(1 << 20);
        let alert = HandshakeAlert::default();
        let mut flight = Flight::new(ours, alert.clone());
        flight.write_all(&vec![1; HELD_MAX]).await.unwrap();
        flight.write_all(&[2; 10]).await.unwrap();
        alert.set(INTERNAL_ERROR);
        flight.shutdown().await.unwrap();
        let mut all = Vec::new();
        theirs.read_to_end(&mut all).await.unwrap();
        assert_eq!((all.len(), all.last()), (HELD_MAX + 10, Some(&2)));
    }
}
