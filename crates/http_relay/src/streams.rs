//! Activity on a client's HTTP/2 connection: detects idle connections and clients that do not read.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::page::Body;

tokio::task_local! {
    /// Time since which the client has not read pending data of the current task's stream.
    static UNREAD: Arc<ConditionStart>;
}

/// Start time of a condition, if it holds.
#[derive(Debug)]
struct ConditionStart(Mutex<Option<Instant>>);

impl ConditionStart {
    fn set(&self, since: Option<Instant>) {
        *self.0.lock() = since;
    }

    /// Completes when the condition has held for `limit` without interruption.
    async fn wait_true_for(&self, limit: Duration) {
        loop {
            let since = *self.0.lock();
            match since {
                Some(since) if since.elapsed() >= limit => return,
                Some(since) => tokio::time::sleep_until(since + limit).await,
                // The condition does not hold now, so it cannot have held for `limit` before this sleep ends.
                None => tokio::time::sleep(limit).await,
            }
        }
    }
}

/// The streams of an HTTP/2 connection. Runs the streams' tasks. Clones share the connection.
#[derive(Clone)]
pub struct Streams(Arc<StreamsState>);

struct StreamsState {
    limit: Duration,
    under_way: Mutex<usize>,
    idle: ConditionStart,
}

impl Streams {
    /// Creates the streams. A client that does not read for `limit` gets its stream reset.
    pub fn new(limit: Duration) -> Self {
        let idle = ConditionStart(Mutex::new(Some(Instant::now())));
        Self(Arc::new(StreamsState { limit, under_way: Mutex::new(0), idle }))
    }

    /// Completes when the connection has had no streams for the limit of [`Self::new`].
    pub async fn idle(&self) {
        self.0.idle.wait_true_for(self.0.limit).await;
    }

    fn begin(&self) -> ActiveStream {
        let mut under_way = self.0.under_way.lock();
        *under_way += 1;
        self.0.idle.set(None);
        ActiveStream(self.clone())
    }
}

struct ActiveStream(Streams);

impl Drop for ActiveStream {
    fn drop(&mut self) {
        let Streams(inner) = &self.0;
        let mut under_way = inner.under_way.lock();
        *under_way -= 1;
        if *under_way == 0 {
            inner.idle.set(Some(Instant::now()));
        }
    }
}

/// Runs a stream's task until the stream or its connection ends. Resets a stream that is not read.
impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, work: F) {
        let (under_way, limit) = (self.begin(), self.0.limit);
        // An upgraded stream continues in other tasks, which share its `UNREAD`.
        let unread =
            UNREAD.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(ConditionStart(Mutex::new(None))));
        tokio::spawn(async move {
            let _under_way = under_way;
            tokio::select! {
                biased;
                () = UNREAD.scope(Arc::clone(&unread), work) => {}
                () = unread.wait_true_for(limit) => tracing::debug!("a client does not read a response: resetting its stream"),
            }
        });
    }
}

/// A guard that keeps the current task's stream in use after its response (CONNECT, WebSocket). After the guard is dropped, the
/// client must read the rest within the limit.
pub struct TunnelGuard(Option<Arc<ConditionStart>>);

impl TunnelGuard {
    /// Creates a guard for the current task's stream; without effect for HTTP/1.
    pub fn on() -> Self {
        Self(UNREAD.try_with(Arc::clone).ok())
    }
}

impl Drop for TunnelGuard {
    fn drop(&mut self) {
        if let Some(unread) = &self.0 {
            unread.set(Some(Instant::now()));
        }
    }
}

/// Body of an HTTP/2 response. Records since when the client must read before more data can be sent.
pub(crate) struct TrackedBody(pub(crate) Body);

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.0).poll_frame(cx);
        // A new poll means that the client has read the earlier data.
        let since = matches!(polled, Poll::Ready(Some(Ok(_)))).then(Instant::now);
        let _ = UNREAD.try_with(|unread| unread.set(since));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn connection_is_idle_after_its_last_stream_ends() {
        let streams = Streams::new(LIMIT);
        let (end, ended) = oneshot::channel::<()>();
        streams.execute(async move {
            let _ = ended.await;
        });
        assert!(tokio::time::timeout(10 * LIMIT + LIMIT / 2, streams.idle()).await.is_err());
        end.send(()).unwrap();
        tokio::task::yield_now().await;
        let began = Instant::now();
        streams.idle().await;
        assert_eq!(began.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn unread_streams_are_aborted_and_pending_streams_are_kept() {
        let streams = Streams::new(LIMIT);
        let began = Instant::now();
        streams.execute(async {
            UNREAD.with(|unread| unread.set(Some(Instant::now())));
            std::future::pending::<()>().await;
        });
        streams.idle().await;
        assert_eq!(began.elapsed().as_secs(), 120, "cut off, and idle after that");
        // A finished tunnel stream whose data is not read.
        let cloned = streams.clone();
        streams.execute(async move {
            let spoken = TunnelGuard::on();
            cloned.execute(std::future::pending());
            drop(spoken);
        });
        let began = Instant::now();
        streams.idle().await;
        assert_eq!(began.elapsed().as_secs(), 120, "cut off, and idle after that");
        streams.execute(std::future::pending());
        assert!(tokio::time::timeout(100 * LIMIT, streams.idle()).await.is_err());
    }
}
