//! The first bytes of a connection: read, judged, and given back to anyone who reads on.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use rustls::server::{Acceptor, ClientHello};
use rustls::{CipherSuite, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::stall::Stall;

/// Bytes of a ClientHello, with its record headers: several times what post-quantum shares take.
const HELLO_OCTETS_MAX: usize = 64 << 10;
/// TLS's content type of handshakes.
const HANDSHAKE: u8 = 22;
/// The first byte of SOCKS5 (RFC 1928 section 3).
pub const SOCKS_VERSION: u8 = 5;
/// How HTTP/2 begins (RFC 9113 section 3.4), and as much of it as nothing else begins with. All of it is waited for here, as the
/// library waits for it without a limit.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PREFACE_ALONE: usize = 3;
/// Bytes of a method after which no space is waited for: none that is registered has more than 17.
const METHOD_OCTETS: usize = 32;
/// For saying to a peer that this is the end, after all that was written has been sent.
const END_WITHIN: Duration = Duration::from_secs(10);
/// How SSH begins (RFC 4253 section 4.2), and no method that anybody uses.
const SSH: &[u8] = b"SSH-";

/// A stream whose first bytes have been read, and to which nothing is written for ever.
#[derive(Debug)]
pub struct RewoundStream<S> {
    first: Bytes,
    stream: S,
    /// How long a write may wait for a peer that does not read, what was written for it to be sent, and the end to be said.
    stall: Stall,
    flush: Stall,
    end: Stall,
}

impl<S> RewoundStream<S> {
    fn new(first: Bytes, stream: S, stall: Duration) -> Self {
        let end = Stall::new(stall.min(END_WITHIN));
        Self { first, stream, stall: Stall::new(stall), flush: Stall::new(stall), end }
    }

    fn written<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            // What takes more has sent some of what it had.
            self.flush.over();
        }
        unless_stalled(&mut self.stall, cx, written)
    }
}

/// What something came to, or an error once it was waited for too long.
fn unless_stalled<T>(
    stall: &mut Stall,
    cx: &mut Context<'_>,
    done: Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    if done.is_ready() {
        stall.over();
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
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, octets);
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
        unless_stalled(&mut self.flush, cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        unless_stalled(&mut self.end, cx, ended)
    }
}

/// What a client begins with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Opening {
    /// TLS.
    Tls(Hello),
    /// A request by HTTP/1.
    Http1,
    /// HTTP/2 in the clear.
    Http2,
    /// SOCKS5, to the proxy itself.
    Socks,
    /// Something else.
    Other,
}

/// Fields of a ClientHello.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Hello {
    /// The server's name, in lower case.
    pub server_name: Option<String>,
    /// Whether it accepts certificates with a P-256 key; otherwise RSA is left.
    pub ecdsa: bool,
    /// Whether the client offers HTTP/2.
    pub http2: bool,
    /// Whether it offers HTTP/1.1, as it does that offers nothing.
    pub http1: bool,
}

/// Why there is nothing to judge.
#[derive(Debug, thiserror::Error)]
pub enum OpeningError {
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The client closed the connection at once.
    #[error("the client sent nothing")]
    Nothing,
    /// The ClientHello is too long.
    #[error("a ClientHello takes at most {HELLO_OCTETS_MAX} bytes")]
    TooLong,
    /// The first bytes look like TLS, and are no ClientHello.
    #[error("this is no ClientHello: {0}")]
    Tls(rustls::Error),
}

/// Reads as little as tells what it is; anyone who calls sets the time. Later writes to who does not read fail after `stall`.
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
                None if first.len() > HELLO_OCTETS_MAX => return Err(OpeningError::TooLong),
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

/// Whether these begin a request by HTTP/1 (RFC 9112 section 3): a method that begins in capitals, and a space. None where more bytes
/// have to tell.
fn begins_request(first: &[u8]) -> Option<bool> {
    if !first[0].is_ascii_uppercase() || first.starts_with(SSH) {
        return Some(false);
    }
    let of_method = |octet: &u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(octet);
    match first.iter().position(|octet| !of_method(octet)) {
        Some(end) => Some(first[end] == b' '),
        None if first.len() >= METHOD_OCTETS => Some(true),
        None => None,
    }
}

/// The ClientHello, once `more` completes it.
fn hello(acceptor: &mut Acceptor, mut more: &[u8]) -> Result<Option<Hello>, OpeningError> {
    while !more.is_empty() {
        acceptor.read_tls(&mut more)?;
        let accepted = acceptor.accept().map_err(|(error, _)| OpeningError::Tls(error))?;
        let Some(accepted) = accepted else { continue };
        let said = accepted.client_hello();
        let offers = |protocol: &[u8]| said.alpn().map(|mut all| all.any(|one| one == protocol));
        return Ok(Some(Hello {
            server_name: said.server_name().map(str::to_ascii_lowercase),
            ecdsa: takes_ecdsa(&said),
            http2: offers(b"h2").unwrap_or(false),
            http1: offers(b"http/1.1").unwrap_or(true),
        }));
    }
    Ok(None)
}

/// Whether it verifies P-256's signatures, and has a cipher suite for them: all of TLS 1.3, or one of ECDHE_ECDSA.
fn takes_ecdsa(hello: &ClientHello<'_>) -> bool {
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
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(octets.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_holds_nobody_for_ever() {
        let mut stream = RewoundStream::new(Bytes::new(), Full, STALL);
        let began = Instant::now();
        for _ in 0..3 {
            // What is taken counts, as of one who reads slowly.
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
