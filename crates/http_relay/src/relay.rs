//! Relaying bytes in both directions.

use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bytes of the buffer for each direction: one TLS record.
const BUFFER: usize = 16 << 10;

/// Outcome of a relay.
#[derive(Debug)]
pub enum RelayEnd {
    /// Both sides closed normally.
    Closed,
    /// No data arrived within the idle timeout.
    Idle,
    /// The connection to one side broke.
    Broken(io::Error),
}

/// Counters of relayed bytes, one for each direction.
#[derive(Clone, Debug)]
pub struct ByteCounters {
    /// Bytes from the client.
    pub up: Counter,
    /// Bytes to the client.
    pub down: Counter,
}

impl Default for ByteCounters {
    /// Creates counters that are not part of any metric.
    fn default() -> Self {
        Self { up: Counter::default(), down: Counter::default() }
    }
}

/// A counter of bytes.
pub trait Count {
    /// Adds `bytes` bytes.
    fn count(&self, bytes: usize);
}

impl Count for Counter {
    fn count(&self, bytes: usize) {
        self.inc_by(bytes as u64);
    }
}

/// The client side of a connection, with counted bytes.
pub struct CountedStream<S, C> {
    stream: S,
    up: Option<C>,
    down: Option<C>,
}

impl<S, C> CountedStream<S, C> {
    /// Creates a stream that counts bytes from the client with `up`, and bytes to the client with `down`.
    pub fn new(stream: S, up: Option<C>, down: Option<C>) -> Self {
        Self { stream, up, down }
    }
}

impl<S: AsyncRead + Unpin, C: Count + Unpin> AsyncRead for CountedStream<S, C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Some(up) = &self.up {
            up.count(buffer.filled().len().saturating_sub(before));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin, C: Count + Unpin> AsyncWrite for CountedStream<S, C> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let (Some(down), Poll::Ready(Ok(count))) = (&self.down, &polled) {
            down.count(*count);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Time of the last received data, in milliseconds since the start of the relay.
struct Activity {
    began: Instant,
    at_ms: AtomicU64,
}

impl Activity {
    fn now(&self) {
        self.at_ms.store(self.began.elapsed().as_millis() as u64, Relaxed);
    }

    /// Completes when no data has arrived for `limit`.
    async fn idle(&self, limit: Duration) {
        loop {
            let last = self.began + Duration::from_millis(self.at_ms.load(Relaxed));
            if last.elapsed() >= limit {
                return;
            }
            tokio::time::sleep_until(last + limit).await;
        }
    }
}

/// Relays bytes between `client` and `upstream` until both sides have ended, a connection breaks, or no data arrives for `idle`. If
/// one side ends, the other is half-closed.
pub async fn relay(
    client: impl AsyncRead + AsyncWrite + Unpin,
    upstream: impl AsyncRead + AsyncWrite + Unpin,
    idle: Duration,
    bytes: &ByteCounters,
) -> RelayEnd {
    relay_with(client, upstream, idle, idle, bytes).await
}

/// Like [`relay`], but after one side has ended, the other side may be silent for `half` at most.
pub async fn relay_with(
    client: impl AsyncRead + AsyncWrite + Unpin,
    upstream: impl AsyncRead + AsyncWrite + Unpin,
    idle: Duration,
    half: Duration,
    bytes: &ByteCounters,
) -> RelayEnd {
    let activity = Activity { began: Instant::now(), at_ms: AtomicU64::new(0) };
    let (from_client, to_client) = tokio::io::split(client);
    let (from_upstream, to_upstream) = tokio::io::split(upstream);
    // Set when one side has ended. After that, an abrupt close is no error.
    let ended = CancellationToken::new();
    let both = async {
        tokio::try_join!(
            pass(from_client, to_upstream, &activity, &bytes.up, &ended),
            pass(from_upstream, to_client, &activity, &bytes.down, &ended),
        )
    };
    tokio::select! {
        both = both => match both {
            Err(error) if !ended.is_cancelled() => RelayEnd::Broken(error),
            _ => RelayEnd::Closed,
        },
        () = activity.idle(idle) => RelayEnd::Idle,
        () = async {
            ended.cancelled().await;
            activity.idle(half).await;
        } => RelayEnd::Idle,
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    activity: &Activity,
    bytes: &Counter,
    ended: &CancellationToken,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            activity.now();
            ended.cancel();
            return to.shutdown().await;
        }
        activity.now();
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        activity.now();
        bytes.inc_by(count as u64);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    fn bytes() -> ByteCounters {
        ByteCounters::default()
    }

    #[tokio::test]
    async fn half_closed_side_still_receives_data() {
        let ((mut client, near), (far, mut upstream)) = (duplex(64), duplex(64));
        let counts = bytes();
        let relaying = relay(near, far, Duration::from_secs(60), &counts);
        let talking = async {
            client.write_all(b"question").await.unwrap();
            client.shutdown().await.unwrap();
            let mut question = String::new();
            upstream.read_to_string(&mut question).await.unwrap();
            upstream.write_all(b"the answer").await.unwrap();
            upstream.shutdown().await.unwrap();
            let mut answered = String::new();
            client.read_to_string(&mut answered).await.unwrap();
            (question, answered)
        };
        let (ended, received) = tokio::join!(relaying, talking);
        assert!(matches!(ended, RelayEnd::Closed), "{ended:?}");
        assert_eq!(received, ("question".into(), "the answer".into()));
        assert_eq!((counts.up.get(), counts.down.get()), (8, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn half_closed_connection_has_a_shorter_idle_timeout() {
        let ((mut client, near), (far, mut upstream)) = (duplex(64), duplex(64));
        let began = Instant::now();
        let talking = async {
            tokio::time::sleep(Duration::from_secs(40)).await;
            client.shutdown().await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
            upstream.write_all(b"still here").await.unwrap();
        };
        let (idle, half, counts) = (Duration::from_secs(60), Duration::from_secs(10), bytes());
        let (ended, ()) = tokio::join!(relay_with(near, far, idle, half, &counts), talking);
        assert!(matches!(ended, RelayEnd::Idle), "{ended:?}");
        assert_eq!((began.elapsed().as_secs(), counts.down.get()), (55, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn relay_ends_when_idle_and_continues_on_activity() {
        let ((mut client, near), (far, _upstream)) = (duplex(64), duplex(64));
        let began = Instant::now();
        let speaking = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(40)).await;
                client.write_all(b".").await.unwrap();
            }
        };
        let counts = bytes();
        let (ended, ()) = tokio::join!(relay(near, far, Duration::from_secs(60), &counts), speaking);
        assert!(matches!(ended, RelayEnd::Idle), "{ended:?}");
        assert_eq!(began.elapsed().as_secs(), 260);
    }
}
