//! One connection: one task, which reads whatever comes and writes whatever is ready, neither waiting for the other.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::Shared;
use super::outbox::Outbox;
use crate::tenant::{Client, Identity};
use crate::wire::{self, BODY_MAX, HEADER};

/// Octets read at once: sixteen padded messages, one TLS record.
const READ: usize = 16 << 10;
/// Octets read before what is ready is written.
const READ_ROUND: usize = 64 << 10;
/// Octets of a buffer that is kept for the next replies.
const KEEP: usize = 256 << 10;
/// A write without progress, before the connection is given up.
const WRITE_WITHIN: Duration = Duration::from_secs(30);
/// For requests under way when nothing more is read.
pub(super) const DRAIN: Duration = Duration::from_secs(5);
/// For the words of farewell.
const FAREWELL: Duration = Duration::from_secs(1);

/// Why a connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// The peer has no more to ask.
    Closed,
    /// Nothing came for too long.
    Idle,
    /// The server stops.
    Stopped,
    /// What came is no message.
    Malformed,
    /// The connection failed.
    Broken,
    /// The peer does not read its replies.
    Unread,
}

impl End {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::Stopped => "stopped",
            Self::Malformed => "malformed",
            Self::Broken => "broken",
            Self::Unread => "unread",
        }
    }
}

/// Serves one stream to its end. At `leave` nothing more is read.
pub(super) async fn serve<S>(
    shared: Arc<Shared>,
    stream: S,
    identity: Identity,
    idle: Duration,
    leave: CancellationToken,
) -> End
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut connection = Connection::new(shared, stream, identity, idle, leave);
    let end = poll_fn(|context| connection.poll(context)).await;
    connection.outbox.close();
    if !matches!(end, End::Broken | End::Unread) {
        // The peer may be gone; nobody waits for it.
        let _ = tokio::time::timeout(FAREWELL, connection.stream.shutdown()).await;
    }
    end
}

enum Phase {
    Serving,
    /// Nothing more is read; what is under way is answered until then.
    Draining(End, Instant),
}

struct Connection<S> {
    shared: Arc<Shared>,
    stream: S,
    idle: Duration,
    outbox: Arc<Outbox>,
    input: Vec<u8>,
    /// What of `input` is read, and not yet taken.
    start: usize,
    end: usize,
    output: Vec<u8>,
    /// What of `output` is written.
    written: usize,
    flushed: bool,
    phase: Phase,
    /// When something was last read.
    read_at: Instant,
    /// When something was last written, or began to wait for that.
    wrote_at: Instant,
    timer: Pin<Box<Sleep>>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn new(
        shared: Arc<Shared>,
        stream: S,
        identity: Identity,
        idle: Duration,
        leave: CancellationToken,
    ) -> Self {
        let now = Instant::now();
        let client = Client::new(identity, &shared.tenants);
        Self {
            outbox: Outbox::new(shared.metrics.clone(), client),
            stop: Box::pin(leave.cancelled_owned()),
            timer: Box::pin(tokio::time::sleep(idle)),
            shared,
            stream,
            idle,
            input: vec![0; READ],
            start: 0,
            end: 0,
            output: Vec::new(),
            written: 0,
            flushed: true,
            phase: Phase::Serving,
            read_at: now,
            wrote_at: now,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        // Before all else: what is answered from now on wakes us.
        self.outbox.register(context.waker());
        if matches!(self.phase, Phase::Serving) {
            if let Some(end) = self.read(context) {
                match end {
                    End::Closed => self.drain(End::Closed),
                    end => return Poll::Ready(end),
                }
            } else if self.stop.as_mut().poll(context).is_ready() {
                self.drain(End::Stopped);
            }
        }
        match self.write(context) {
            Poll::Ready(Err(_)) => return Poll::Ready(End::Broken),
            Poll::Ready(Ok(())) => {
                if let Phase::Draining(end, _) = self.phase
                    && self.outbox.in_flight() == 0
                    // Replies made since are written first.
                    && !self.outbox.take(&mut self.output)
                {
                    return Poll::Ready(end);
                }
                if !self.output.is_empty() {
                    context.waker().wake_by_ref();
                }
            }
            Poll::Pending => {}
        }
        if self.outbox.has_overflowed() {
            return Poll::Ready(End::Unread);
        }
        self.look_at_the_clock(context)
    }

    fn drain(&mut self, end: End) {
        self.phase = Phase::Draining(end, Instant::now() + DRAIN);
    }

    /// Reads what there is and takes every whole message.
    fn read(&mut self, context: &mut Context<'_>) -> Option<End> {
        let mut round = 0;
        loop {
            self.make_room();
            let mut room = ReadBuf::new(&mut self.input[self.end..]);
            match Pin::new(&mut self.stream).poll_read(context, &mut room) {
                Poll::Pending => return None,
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Some(End::Closed);
                }
                Poll::Ready(Err(_)) => return Some(End::Broken),
                Poll::Ready(Ok(())) => {}
            }
            let count = room.filled().len();
            if count == 0 {
                return Some(End::Closed);
            }
            self.end += count;
            self.read_at = Instant::now();
            while let Some((header, body)) = wire::first(&self.input[self.start..self.end]) {
                let length = HEADER + body.len();
                if let Err(error) = self.shared.take(&self.outbox, header, body) {
                    tracing::info!(%error, "a connection sent what is no message");
                    return Some(End::Malformed);
                }
                self.start += length;
            }
            round += count;
            if round >= READ_ROUND {
                context.waker().wake_by_ref();
                return None;
            }
        }
    }

    /// Room for some more, and for the whole of a message that has begun.
    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.input.len() > READ {
                self.input.truncate(READ);
                self.input.shrink_to_fit();
            }
        } else if self.start > 0 && self.input.len() - self.end < READ / 4 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.input.len() {
            self.input.resize(HEADER + BODY_MAX, 0);
        }
    }

    /// Ready when there is nothing more to write now.
    fn write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.written == self.output.len() {
                self.output.clear();
                self.written = 0;
                if self.output.capacity() > KEEP {
                    self.output = Vec::new();
                }
                if !self.outbox.take(&mut self.output) {
                    break;
                }
                if self.flushed {
                    self.wrote_at = Instant::now();
                }
                self.flushed = false;
            }
            let written = Pin::new(&mut self.stream).poll_write(context, &self.output[self.written..]);
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => {
                    self.written += count;
                    self.wrote_at = Instant::now();
                }
            }
        }
        if !self.flushed {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Ends what waits for too long, and sees to it that we are woken for that.
    fn look_at_the_clock(&mut self, context: &mut Context<'_>) -> Poll<End> {
        loop {
            let now = Instant::now();
            if !self.flushed && now >= self.wrote_at + WRITE_WITHIN {
                return Poll::Ready(End::Unread);
            }
            let due = match self.phase {
                Phase::Draining(end, until) if now >= until => return Poll::Ready(end),
                Phase::Serving if now >= self.read_at + self.idle => {
                    self.drain(End::Idle);
                    context.waker().wake_by_ref();
                    continue;
                }
                Phase::Draining(_, until) => until,
                Phase::Serving => self.read_at + self.idle,
            };
            let due = if self.flushed { due } else { due.min(self.wrote_at + WRITE_WITHIN) };
            // A timer that is too early is set again when it fires, not with every message.
            if due < self.timer.deadline() || self.timer.is_elapsed() {
                self.timer.as_mut().reset(due);
            }
            ready!(self.timer.as_mut().poll(context));
        }
    }
}
