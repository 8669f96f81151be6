//! One connection of the Keyless protocol: a single task reads and writes concurrently.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::outbox::Outbox;
use super::state::ServerState;
use crate::tenant::{Client, Identity};
use crate::wire::{self, BODY_MAX, HEADER};

/// Bytes of one read: sixteen padded messages, one TLS record.
const READ: usize = 16 << 10;
/// Maximum bytes to read before finished replies are written.
const READ_ROUND: usize = 64 << 10;
/// Maximum capacity of a buffer that is reused for later replies.
const BUFFER_CAPACITY_MAX: usize = 256 << 10;
/// Timeout of a write without progress; then the connection is closed.
const WRITE_WITHIN: Duration = Duration::from_secs(30);
/// Time for pending requests after reading has stopped.
pub(super) const DRAIN: Duration = Duration::from_secs(5);
/// Timeout for closing the stream.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Reason why a client's connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// The peer closed the connection.
    Closed,
    /// The peer sent nothing within the idle timeout.
    Idle,
    /// The server stops.
    Stopped,
    /// The received bytes are not a valid message.
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

/// Serves one stream until it ends. Once `leave` is cancelled, nothing more is read.
pub(super) async fn serve<S>(
    shared: Arc<ServerState>,
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
        // The peer may already have closed the connection; the result does not matter.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, connection.stream.shutdown()).await;
    }
    end
}

enum Phase {
    Serving,
    /// Reading has stopped; pending requests are answered until this time.
    Draining(End, Instant),
}

struct Connection<S> {
    shared: Arc<ServerState>,
    stream: S,
    idle: Duration,
    outbox: Arc<Outbox>,
    input: Vec<u8>,
    /// Position of the first unprocessed byte in `input`.
    start: usize,
    end: usize,
    output: Vec<u8>,
    /// Bytes of `output` that are already written.
    written: usize,
    flushed: bool,
    phase: Phase,
    /// Time of the last read.
    read_at: Instant,
    /// Time of the last write, or the time at which the current wait for a write began.
    wrote_at: Instant,
    timer: Pin<Box<Sleep>>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn new(
        shared: Arc<ServerState>,
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
        // Register first, so that every later reply wakes this task.
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
                    // First write the replies that finished during the last write.
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
        self.poll_timeouts(context)
    }

    fn drain(&mut self, end: End) {
        self.phase = Phase::Draining(end, Instant::now() + DRAIN);
    }

    /// Reads the available bytes and processes every complete message.
    fn read(&mut self, context: &mut Context<'_>) -> Option<End> {
        let mut round = 0;
        loop {
            self.reserve();
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
                    tracing::info!(%error, "received an invalid message");
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

    /// Reserves space for further bytes, and for the whole of a message that has begun.
    fn reserve(&mut self) {
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

    /// Returns ready when there is nothing more to write.
    fn write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.written == self.output.len() {
                self.output.clear();
                self.written = 0;
                if self.output.capacity() > BUFFER_CAPACITY_MAX {
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

    /// Ends a connection whose timeout has expired, and sets the timer for the next timeout.
    fn poll_timeouts(&mut self, context: &mut Context<'_>) -> Poll<End> {
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
            // A timer that would fire too early is reset when it fires, not with every message.
            if due < self.timer.deadline() || self.timer.is_elapsed() {
                self.timer.as_mut().reset(due);
            }
            ready!(self.timer.as_mut().poll(context));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    use futures_util::task::AtomicWaker;
    use keys::{Hash, KeyRef, KeyType, PrivateKey, Scheme, Signer};
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::*;
    use crate::server::{Options, Running, start};
    use crate::wire::{MessageItems, Ski, opcode};
    use crate::{KeySet, Metrics};

    /// Capacity of the test stream in bytes: writes never wait for the reader.
    const WAY: usize = 32 << 20;

    /// A stream that counts its writes, and accepts none while it is shut.
    struct Counting {
        inner: DuplexStream,
        gate: Arc<Gate>,
    }

    #[derive(Default)]
    struct Gate {
        is_open: AtomicBool,
        writes: AtomicUsize,
        waker: AtomicWaker,
    }

    impl Gate {
        fn open(&self) {
            self.is_open.store(true, SeqCst);
            self.waker.wake();
        }
    }

    impl AsyncRead for Counting {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_read(context, into)
        }
    }

    impl AsyncWrite for Counting {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.gate.waker.register(context.waker());
            if !self.gate.is_open.load(SeqCst) {
                return Poll::Pending;
            }
            self.gate.writes.fetch_add(1, SeqCst);
            Pin::new(&mut self.inner).poll_write(context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.inner).poll_shutdown(context)
        }
    }

    struct World {
        running: Running,
        client: DuplexStream,
        gate: Arc<Gate>,
        key: PrivateKey,
        _folder: tempfile::TempDir,
    }

    impl World {
        /// Returns a connection with these requests, sent in one write before the server reads.
        async fn with_requests(count: u32, items: impl Fn(Ski) -> MessageItems<'static>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let socket = Some(folder.path().join("keys.sock"));
            let options = Options { socket, processors: 1, ..Options::default() };
            let key = PrivateKey::generate(KeyType::P256).unwrap();
            let keys = KeySet::default();
            keys.put("folder", vec![Arc::new(key.clone()) as KeyRef]);
            let running = start(options, keys, Metrics::default()).await.unwrap();
            let (mut client, server) = duplex(WAY);
            let mut messages = Vec::new();
            for id in 0..count {
                items(Ski::of_spki(key.spki())).encode(id, &mut messages).unwrap();
            }
            client.write_all(&messages).await.unwrap();
            let gate = Arc::new(Gate::default());
            let stream = Counting { inner: server, gate: Arc::clone(&gate) };
            let (shared, minute) = (Arc::clone(&running.shared), Duration::from_secs(60));
            let serving =
                serve(Arc::clone(&shared), stream, Identity::socket(), minute, CancellationToken::new());
            let tasks = shared.tasks.clone();
            tasks.spawn_bounded(async move { shared.counted(async { serving.await.name() }).await });
            Self { running, client, gate, key, _folder: folder }
        }

        /// Returns the payloads of `count` replies, each exactly once.
        async fn replies(&mut self, count: usize) -> Vec<Vec<u8>> {
            let (mut bytes, mut payloads) = (Vec::new(), vec![None; count]);
            let mut start = 0;
            while payloads.iter().any(Option::is_none) {
                assert!(self.client.read_buf(&mut bytes).await.unwrap() > 0, "it is closed");
                while let Some((header, body)) = wire::first(&bytes[start..]) {
                    let items = MessageItems::parse(body).unwrap();
                    assert_ne!(items.opcode, opcode::ERROR, "{:?}", items.payload);
                    let before = payloads[header.id as usize].replace(items.payload.to_vec());
                    assert!(before.is_none(), "{} is answered twice", header.id);
                    start += HEADER + body.len();
                }
            }
            payloads.into_iter().flatten().collect()
        }

        async fn stop(self) {
            drop(self.client);
            assert!(self.running.stop().await);
        }
    }

    /// Replies to requests from one read are sent in one write, up to the bytes of a read round.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn replies_to_pipelined_requests_are_written_together() {
        const MANY: usize = 4_096;
        let ping = |_| MessageItems { opcode: opcode::PING, payload: b"?", ..MessageItems::default() };
        let mut world = World::with_requests(MANY as u32, ping).await;
        world.gate.open();
        let replies = world.replies(MANY).await;
        assert!(replies.iter().all(|payload| payload == b"?"));
        let writes = world.gate.writes.load(SeqCst);
        println!("{MANY} replies in {writes} writes");
        assert!(writes <= MANY / 32, "{writes} writes");
        world.stop().await;
    }

    /// Replies that finish while the peer accepts nothing are combined: the write in progress, one write for the rest, and possibly
    /// one for the last reply.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn replies_finished_while_the_peer_is_blocked_use_few_writes() {
        const MANY: usize = 2_048;
        let sign =
            |ski| MessageItems { opcode: 0x15, ski: Some(ski), payload: &[7; 32], ..MessageItems::default() };
        let mut world = World::with_requests(MANY as u32, sign).await;
        let light = crate::stage::Cost::Light;
        let all_done = async {
            let shared = &world.running.shared;
            let tenant = shared.tenants.named(crate::tenant::DEFAULT);
            while shared.stage.figures(light).done < MANY as u64 || tenant.counters().in_flight.get() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(180), all_done).await.unwrap();
        assert_eq!(world.gate.writes.load(SeqCst), 0);
        world.gate.open();
        let replies = world.replies(MANY).await;
        let writes = world.gate.writes.load(SeqCst);
        println!("{MANY} replies in {writes} writes");
        assert!((2..=3).contains(&writes), "{writes} writes for {MANY} replies");
        let scheme = Scheme::Ecdsa(Hash::Sha256);
        let (spki, kind) = (world.key.spki(), world.key.key_type());
        assert!(keys::verify::verifies(spki, kind, scheme, &[7; 32], &replies[MANY / 2]));
        world.stop().await;
    }
}
