//! The task of one connection: connects the channel, reads, writes, pings the server, and reconnects.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::address::Server;
use super::channel::{Channel, ConnectionState};
use crate::backoff::spread;
use crate::wire::{self, BODY_MAX, ErrorCode, HEADER, MAJOR, MessageItems, opcode};

/// Maximum capacity of a write buffer that is reused.
const BUFFER_CAPACITY_MAX: usize = 256 << 10;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Connects a channel, and reconnects after failures, until `stopping` is cancelled.
pub(super) async fn maintain(channel: Arc<Channel>, stopping: CancellationToken) {
    let _live = telemetry::tasks::guard("keyless-client");
    tokio::select! {
        () = stopping.cancelled() => {}
        () = keep_connected(&channel) => {}
    }
    channel.close(ConnectionState::Down);
}

async fn keep_connected(channel: &Channel) {
    let mut pause = channel.options.backoff;
    let mut is_known_unreachable = false;
    loop {
        match connect(channel).await {
            Ok(stream) => {
                channel.metrics.connected(true);
                is_known_unreachable = false;
                tracing::info!(server = %channel.server(), "connected to the key service");
                let since = Instant::now();
                channel.open();
                let why = run(channel, stream).await;
                // Reconnect immediately if the connection was open longer than the maximum pause. A server that closes connections
                // sooner counts as down.
                let was_good = since.elapsed() > channel.options.backoff_max;
                channel.close(if was_good { ConnectionState::Connecting } else { ConnectionState::Down });
                tracing::warn!(server = %channel.server(), error = %why, "the connection to the key service was lost");
                if was_good {
                    pause = channel.options.backoff;
                    continue;
                }
            }
            Err(error) => {
                channel.metrics.connected(false);
                channel.set(ConnectionState::Down);
                // Warn once: later failures report the same problem.
                if std::mem::replace(&mut is_known_unreachable, true) {
                    tracing::info!(server = %channel.server(), %error, "the key service cannot be reached");
                } else {
                    tracing::warn!(server = %channel.server(), %error, "the key service cannot be reached; will retry");
                }
            }
        }
        tokio::time::sleep(spread(pause)).await;
        pause = (pause * 2).min(channel.options.backoff_max);
    }
}

async fn connect(channel: &Channel) -> io::Result<Box<dyn Stream>> {
    let connecting = async {
        match (channel.server(), &channel.tls) {
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
    match tokio::time::timeout(channel.options.connect_timeout, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Reads, writes and pings concurrently until one of them fails.
async fn run(channel: &Channel, stream: Box<dyn Stream>) -> io::Error {
    let (reader, writer) = tokio::io::split(stream);
    tokio::select! {
        error = read(channel, reader) => error,
        error = write(channel, writer) => error,
        error = ping(channel) => error,
    }
}

/// Writes the output in batches: all requests that were queued during a write go into the next one.
async fn write(channel: &Channel, mut writer: impl AsyncWrite + Unpin) -> io::Error {
    let mut buffer = Vec::new();
    loop {
        channel.outgoing(&mut buffer).await;
        if let Err(error) = writer.write_all(&buffer).await {
            return error;
        }
        if let Err(error) = writer.flush().await {
            return error;
        }
        buffer.clear();
        if buffer.capacity() > BUFFER_CAPACITY_MAX {
            buffer = Vec::new();
        }
    }
}

async fn read(channel: &Channel, mut reader: impl AsyncRead + Unpin) -> io::Error {
    // Large enough for every message.
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
                return io::Error::other("the server uses another protocol version");
            }
            let items = match MessageItems::parse(body) {
                Ok(items) => items,
                Err(error) => return io::Error::other(error),
            };
            let answer = match (items.opcode, items.payload) {
                (opcode::SUCCESS | opcode::PONG, payload) => Ok(payload.to_vec()),
                (opcode::ERROR, [byte]) => Err(ErrorCode::of(*byte).unwrap_or(ErrorCode::Internal)),
                (other, _) => return io::Error::other(format!("unexpected opcode {other:#04x} in a reply")),
            };
            channel.complete(header.id, answer);
        }
    }
}

/// Pings the server at intervals. Returns when a ping is not answered in time.
async fn ping(channel: &Channel) -> io::Error {
    let options = &channel.options;
    loop {
        tokio::time::sleep(options.ping_every).await;
        let items = MessageItems { opcode: opcode::PING, ..MessageItems::default() };
        // Pings ignore the limit of pending requests. Otherwise a dead connection with many pending requests would not be detected.
        let pending = match channel.send(&items, usize::MAX) {
            Ok(pending) => pending,
            // The output queue is full, so nothing was written for a long time.
            Err(error) => return io::Error::other(error),
        };
        if let Err(error) = pending.reply(Instant::now() + options.ping_timeout).await {
            return io::Error::other(error);
        }
    }
}
