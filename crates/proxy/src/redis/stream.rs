//! The connection of a client, with its commands.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;
use zeroize::{Zeroize, Zeroizing};

use super::command::{BadCommand, CommandReader, Head};
use super::handling::reads_whole;

/// Bytes of the buffer for commands of a client: one TLS record.
const BUFFER_BYTES: usize = 16 << 10;
/// Time for which the proxy still reads after an error that ends the connection. Closing a connection with unread bytes resets it,
/// and the client might lose the error.
const LAST_READ: Duration = Duration::from_secs(1);

/// A client's connection, read command by command.
pub(super) struct CommandStream<S> {
    pub(super) stream: S,
    reader: CommandReader,
    buffer: Zeroizing<Vec<u8>>,
    /// Place of the bytes in `buffer` that the reader has not read.
    unread: Range<usize>,
}

impl<S> CommandStream<S> {
    pub(super) fn new(stream: S) -> Self {
        let buffer = Zeroizing::new(vec![0; BUFFER_BYTES]);
        Self { stream, reader: CommandReader::new(reads_whole), buffer, unread: 0..0 }
    }

    /// Returns the command that needs a decision.
    pub(super) fn head(&self) -> Head<'_> {
        self.reader.head()
    }

    pub(super) fn forward(&mut self, output: &mut Vec<u8>) {
        self.reader.forward(output);
    }

    /// Discards the command, and overwrites its buffered bytes, because it may contain a token.
    pub(super) fn discard(&mut self) {
        // A part that arrived earlier was overwritten by later bytes.
        let begins = self.unread.start.saturating_sub(self.reader.head_bytes());
        self.buffer[begins..self.unread.start].zeroize();
        self.reader.discard();
    }

    pub(super) fn is_forwarding(&self) -> bool {
        self.reader.is_forwarding()
    }

    /// Reads the buffered bytes up to the next command that needs a decision. Returns whether there is one.
    pub(super) fn read_buffered(&mut self, output: &mut Vec<u8>) -> Result<bool, BadCommand> {
        let mut input = &self.buffer[self.unread.clone()];
        let found = self.reader.read(&mut input, output);
        self.unread.start = self.unread.end - input.len();
        found
    }
}

impl<S: AsyncRead + Unpin> CommandStream<S> {
    /// Reads more bytes, after all buffered bytes were read. Returns false at the end of the stream.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut buffer = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
        self.unread = 0..buffer.filled().len();
        Poll::Ready(Ok(!self.unread.is_empty()))
    }

    /// Reads up to the next command, before any command is forwarded. Returns false at the end of the stream.
    pub(super) async fn next(&mut self) -> io::Result<Result<bool, BadCommand>> {
        loop {
            match self.read_buffered(&mut Vec::new()) {
                Ok(false) => {}
                found => return Ok(found),
            }
            if !std::future::poll_fn(|cx| self.poll_fill(cx)).await? {
                return Ok(Ok(false));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> CommandStream<S> {
    /// Writes and flushes: a TLS stream may buffer data, and reading does not flush it.
    pub(super) async fn send(&mut self, reply: &[u8]) -> io::Result<()> {
        self.stream.write_all(reply).await?;
        self.stream.flush().await
    }

    /// Sends the last reply, and ends the connection.
    pub(super) async fn end(&mut self, reply: &[u8]) {
        let _ = timeout(LAST_READ, async {
            self.send(reply).await?;
            self.stream.shutdown().await?;
            while self.stream.read(&mut self.buffer).await? > 0 {}
            io::Result::Ok(())
        })
        .await;
    }
}
