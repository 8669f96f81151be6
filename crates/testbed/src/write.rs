//! Writing to a stream that may buffer.

use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};

/// Writes all bytes and flushes. A TLS stream may buffer written bytes, and reading does not send them.
///
/// # Errors
/// An error of the stream.
pub async fn write_and_flush(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}
