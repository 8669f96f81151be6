//! The first bytes of a connection. They are read, classified, and returned to the next reader.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rustls::server::{Acceptor, ClientHello};
use rustls::{CipherSuite, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::stall::StallTimeout;

/// Maximum bytes of a ClientHello with its record headers. A ClientHello with post-quantum key shares is several times smaller.
const HELLO_BYTES_MAX: usize = 64 << 10;
/// TLS content type of handshake records.
const HANDSHAKE: u8 = 22;
/// The first byte of SOCKS5 (RFC 1928 section 3).
pub const SOCKS_VERSION: u8 = 5;
/// The start of the HTTP/2 preface (RFC 9113 section 3.4) that identifies HTTP/2. The whole preface is awaited here, because the
/// HTTP library would wait for it without a timeout.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PREFACE_ALONE: usize = 3;
/// Maximum bytes of a method: more than the 17 of the longest registered method.
const METHOD_BYTES: usize = 32;
/// Timeout for closing the write side, after all written bytes were sent.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Start of an SSH connection (RFC 4253 section 4.2). No HTTP method in use starts with these bytes.
const SSH: &[u8] = b"SSH-";

/// A stream that returns its first bytes again. Writes, flush and shutdown have timeouts.
#[derive(Debug)]
pub struct RewoundStream<S> {
    first: Bytes,
    stream: S,
    /// Timeouts of a write to a peer that does not read (`stall`), of a flush (`flush`), and of the shutdown (`end`).
    stall: StallTimeout,
    flush: StallTimeout,
    end: StallTimeout,
}

impl<S> RewoundStream<S> {
    fn new(first: Bytes, stream: S, stall: Duration) -> Self {
        let end = StallTimeout::new(stall.min(END_WITHIN));
        Self { first, stream, stall: StallTimeout::new(stall), flush: StallTimeout::new(stall), end }
    }

    fn written<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            // A successful write means that some buffered bytes were sent.
            self.flush.record_progress();
        }
        poll_or_time_out(&mut self.stall, cx, written)
    }
}

/// Returns the result of `done`, or an error when its timeout has expired.
fn poll_or_time_out<T>(
    stall: &mut StallTimeout,
    cx: &mut Context<'_>,
    done: Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    if done.is_ready() {
        stall.record_progress();
        return done;
    }
    ready!(stall.poll(cx));
    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
}

impl<S: AsyncRead + Unpin> AsyncRead for RewoundStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.has_remaining() {
            let some = self.first.len().min(into.remaining());
            into.put_slice(&self.first.split_to(some));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RewoundStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        poll_or_time_out(&mut self.flush, cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        poll_or_time_out(&mut self.end, cx, ended)
    }
}

/// Protocol that a client starts with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Opening {
    /// TLS, with the fields of its ClientHello.
    Tls(ClientHelloFields),
    /// An HTTP/1 request.
    Http1,
    /// Unencrypted HTTP/2.
    Http2,
    /// A SOCKS5 request to the proxy.
    Socks,
    /// An unknown protocol.
    Other,
}

/// Fields of a ClientHello: server name, and support of ECDSA and HTTP versions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientHelloFields {
    /// The server's name, in lower case.
    pub server_name: Option<String>,
    /// Whether the client accepts P-256 certificates. If not, it gets an RSA certificate.
    pub ecdsa: bool,
    /// Whether the client offers HTTP/2.
    pub http2: bool,
    /// Whether the client offers HTTP/1.1. True for a client without ALPN.
    pub http1: bool,
}

/// Reason why the protocol cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum OpeningError {
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The client closed the connection without sending a byte.
    #[error("the client sent no data")]
    Nothing,
    /// The ClientHello has more than 64 KiB.
    #[error("the ClientHello is longer than {HELLO_BYTES_MAX} bytes")]
    TooLong,
    /// The first bytes look like TLS but are not a ClientHello.
    #[error("not a ClientHello: {0}")]
    Tls(rustls::Error),
}

/// Reads as few bytes as necessary to determine the protocol. The caller sets a timeout for this read. Later writes to a peer that
/// does not read fail after `stall`.
pub async fn read<S: AsyncRead + Unpin>(
    mut stream: S,
    stall: Duration,
) -> Result<(Opening, RewoundStream<S>), OpeningError> {
    let mut first = BytesMut::with_capacity(2_048);
    let mut acceptor = Acceptor::default();
    let mut seen = 0;
    let opening = loop {
        if stream.read_buf(&mut first).await? == 0 {
            return Err(OpeningError::Nothing);
        }
        if first[0] == HANDSHAKE {
            match hello(&mut acceptor, &first[seen..])? {
                Some(hello) => break Opening::Tls(hello),
                None if first.len() > HELLO_BYTES_MAX => return Err(OpeningError::TooLong),
                None => seen = first.len(),
            }
        } else if first[0] == SOCKS_VERSION {
            break Opening::Socks;
        } else if first.starts_with(&PREFACE[..PREFACE_ALONE]) {
            if first.len() >= PREFACE.len() {
                break if first.starts_with(PREFACE) { Opening::Http2 } else { Opening::Other };
            }
        } else if let Some(is_request) = begins_request(&first) {
            break if is_request { Opening::Http1 } else { Opening::Other };
        }
    };
    Ok((opening, RewoundStream::new(first.freeze(), stream, stall)))
}

/// Returns whether the bytes start an HTTP/1 request (RFC 9112 section 3): a method that starts with capital letters, and a space.
/// `None` if more bytes are needed.
fn begins_request(first: &[u8]) -> Option<bool> {
    if !first[0].is_ascii_uppercase() || first.starts_with(SSH) {
        return Some(false);
    }
    let of_method = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    match first.iter().position(|byte| !of_method(byte)) {
        Some(end) => Some(first[end] == b' '),
        None if first.len() >= METHOD_BYTES => Some(true),
        None => None,
    }
}

/// Returns the ClientHello if `more` completes it.
fn hello(acceptor: &mut Acceptor, mut more: &[u8]) -> Result<Option<ClientHelloFields>, OpeningError> {
    while !more.is_empty() {
        acceptor.read_tls(&mut more)?;
        let accepted = acceptor.accept().map_err(|(error, _)| OpeningError::Tls(error))?;
        let Some(accepted) = accepted else { continue };
        let client_hello = accepted.client_hello();
        let offers = |protocol: &[u8]| client_hello.alpn().map(|mut all| all.any(|one| one == protocol));
        return Ok(Some(ClientHelloFields {
            server_name: client_hello.server_name().map(str::to_ascii_lowercase),
            ecdsa: supports_ecdsa(&client_hello),
            http2: offers(b"h2").unwrap_or(false),
            http1: offers(b"http/1.1").unwrap_or(true),
        }));
    }
    Ok(None)
}

/// Returns whether the client verifies P-256 signatures and supports a cipher suite for them: TLS 1.3, or a suite of ECDHE_ECDSA.
fn supports_ecdsa(hello: &ClientHello<'_>) -> bool {
    let fits = |suite: &CipherSuite| {
        suite.as_str().is_some_and(|name| name.starts_with("TLS13_") || name.starts_with("TLS_ECDHE_ECDSA_"))
    };
    hello.signature_schemes().contains(&SignatureScheme::ECDSA_NISTP256_SHA256)
        && hello.cipher_suites().iter().any(fits)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::time::Instant;

    use super::*;

    const STALL: Duration = Duration::from_secs(300);

    /// A stream that accepts no writes.
    struct Full;

    impl AsyncWrite for Full {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn blocked_flush_and_shutdown_time_out() {
        let mut stream = RewoundStream::new(Bytes::new(), Full, STALL);
        let began = Instant::now();
        for _ in 0..3 {
            // A peer that reads slowly makes progress and does not time out.
            assert!(tokio::time::timeout(STALL * 9 / 10, stream.flush()).await.is_err());
            stream.write_all(b"more").await.unwrap();
        }
        let last = Instant::now();
        assert_eq!(stream.flush().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(last.elapsed(), STALL);
        assert!(began.elapsed() > 3 * STALL);
        let ending = Instant::now();
        assert_eq!(stream.shutdown().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(ending.elapsed(), END_WITHIN);
    }
}
