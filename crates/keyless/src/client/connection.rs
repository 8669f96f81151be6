//! The connection of a link: made, kept alive, and made again.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::address::Server;
use super::link::{Link, State};
use crate::backoff::spread;
use crate::wire::{self, BODY_MAX, ErrorCode, HEADER, Items, MAJOR, opcode};

/// Octets of a buffer that is kept for the next requests.
const KEEP: usize = 256 << 10;

/// What is read and written.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Keeps a link connected until told to stop.
pub(super) async fn keep(link: Arc<Link>, stopping: CancellationToken) {
    let _live = telemetry::tasks::guard("keyless-client");
    tokio::select! {
        () = stopping.cancelled() => {}
        () = connect_again_and_again(&link) => {}
    }
    link.close(State::Down);
}

async fn connect_again_and_again(link: &Link) {
    let mut pause = link.options.backoff;
    let mut is_known_to_be_away = false;
    loop {
        match connect(link).await {
            Ok(stream) => {
                link.metrics.connected(true);
                is_known_to_be_away = false;
                tracing::info!(server = %link.server(), "connected to the key service");
                let since = Instant::now();
                link.open();
                let why = run(link, stream).await;
                // One that was good for something is made again at once; who ends others soon is as good as away.
                let was_good = since.elapsed() > link.options.backoff_max;
                link.close(if was_good { State::Connecting } else { State::Down });
                tracing::warn!(server = %link.server(), error = %why, "the connection to the key service was lost");
                if was_good {
                    pause = link.options.backoff;
                    continue;
                }
            }
            Err(error) => {
                link.metrics.connected(false);
                link.set(State::Down);
                // Told once: each try after it says the same.
                if std::mem::replace(&mut is_known_to_be_away, true) {
                    tracing::info!(server = %link.server(), %error, "the key service cannot be reached");
                } else {
                    tracing::warn!(server = %link.server(), %error, "the key service cannot be reached; it is tried again");
                }
            }
        }
        tokio::time::sleep(spread(pause)).await;
        pause = (pause * 2).min(link.options.backoff_max);
    }
}

async fn connect(link: &Link) -> io::Result<Box<dyn Stream>> {
    let connecting = async {
        match (link.server(), &link.tls) {
            (Server::Unix(path), _) => Ok(Box::new(UnixStream::connect(path).await?) as Box<dyn Stream>),
            (Server::Tls { host, port }, Some(tls)) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                let connector = TlsConnector::from(Arc::clone(&tls.config.read()));
                Ok(Box::new(connector.connect(tls.name.clone(), stream).await?) as Box<dyn Stream>)
            }
            (Server::Tls { .. }, None) => Err(io::Error::other("no certificate")),
        }
    };
    match tokio::time::timeout(link.options.connect_timeout, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Reads, writes and pings, none waiting for the others, until one of them cannot.
async fn run(link: &Link, stream: Box<dyn Stream>) -> io::Error {
    let (reader, writer) = tokio::io::split(stream);
    tokio::select! {
        error = read(link, reader) => error,
        error = write(link, writer) => error,
        error = ping(link) => error,
    }
}

/// Everything asked for while the last write was under way, is the next one.
async fn write(link: &Link, mut writer: impl AsyncWrite + Unpin) -> io::Error {
    let mut buffer = Vec::new();
    loop {
        link.outgoing(&mut buffer).await;
        if let Err(error) = writer.write_all(&buffer).await {
            return error;
        }
        if let Err(error) = writer.flush().await {
            return error;
        }
        buffer.clear();
        if buffer.capacity() > KEEP {
            buffer = Vec::new();
        }
    }
}

async fn read(link: &Link, mut reader: impl AsyncRead + Unpin) -> io::Error {
    // A whole message always fits.
    let mut buffer = vec![0; HEADER + BODY_MAX];
    let (mut start, mut end) = (0, 0);
    loop {
        if start > 0 {
            buffer.copy_within(start..end, 0);
            (start, end) = (0, end - start);
        }
        match reader.read(&mut buffer[end..]).await {
            Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
            Ok(count) => end += count,
            Err(error) => return error,
        }
        while let Some((header, body)) = wire::first(&buffer[start..end]) {
            start += HEADER + body.len();
            if header.major != MAJOR {
                return io::Error::other("it speaks another protocol");
            }
            let items = match Items::parse(body) {
                Ok(items) => items,
                Err(error) => return io::Error::other(error),
            };
            let answer = match (items.opcode, items.payload) {
                (opcode::SUCCESS | opcode::PONG, payload) => Ok(payload.to_vec()),
                (opcode::ERROR, [octet]) => Err(ErrorCode::of(*octet).unwrap_or(ErrorCode::Internal)),
                (other, _) => return io::Error::other(format!("a reply with the opcode {other:#04x}")),
            };
            link.answer(header.id, answer);
        }
    }
}

/// Ends when a ping is not answered in time.
async fn ping(link: &Link) -> io::Error {
    let options = &link.options;
    loop {
        tokio::time::sleep(options.ping_every).await;
        let items = Items { opcode: opcode::PING, ..Items::default() };
        // A ping is never refused for the others' sake: without it nobody knows whether they will be answered.
        let asked = match link.ask(&items, usize::MAX) {
            Ok(asked) => asked,
            // So much waits to be written that nothing of it was for long.
            Err(error) => return io::Error::other(error),
        };
        if let Err(error) = asked.answered(Instant::now() + options.ping_timeout).await {
            return io::Error::other(error);
        }
    }
}
