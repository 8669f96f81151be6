//! Timeouts for a peer that stops sending or reading.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

/// A timeout that restarts with each progress.
#[derive(Debug)]
pub(crate) struct StallTimeout {
    limit: Duration,
    /// Created by the first wait.
    sleep: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl StallTimeout {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, sleep: None, is_waiting: false }
    }

    /// Resets the timeout after progress.
    pub(crate) fn record_progress(&mut self) {
        self.is_waiting = false;
    }

    /// Completes when there was no progress for the timeout.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = Instant::now() + self.limit;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if !self.is_waiting {
            self.is_waiting = true;
            sleep.as_mut().reset(until);
        }
        sleep.as_mut().poll(cx)
    }
}

/// State of a request's upload, shared by both ends of the exchange.
#[derive(Debug)]
struct UploadState {
    stalled: AtomicBool,
    broken: AtomicBool,
    is_answered: AtomicBool,
    turn: Mutex<Turn>,
}

/// The side that must act next (client or upstream), and the time since which it must act.
#[derive(Clone, Copy, Debug)]
struct Turn {
    is_clients: bool,
    since: Instant,
}

impl UploadState {
    /// Records that the upstream must act next, from now on.
    fn set_waiting_for_upstream(&self) {
        *self.turn.lock() = Turn { is_clients: false, since: Instant::now() };
    }

    fn set_waiting_for_client(&self) {
        let mut turn = self.turn.lock();
        if !turn.is_clients {
            *turn = Turn { is_clients: true, since: Instant::now() };
        }
    }
}

/// Timeout of a request's body. It does not apply while the response is in progress: the client may then be silent, and the
/// response has its own timeout.
#[derive(Debug)]
pub struct UploadTimer {
    stall: StallTimeout,
    state: Arc<UploadState>,
}

/// Status of a request's upload: whether the body stalled or failed, and whether the response is in progress.
#[derive(Debug)]
pub struct UploadStatus(Arc<UploadState>);

/// A guard: the response counts as in progress until it is dropped.
#[derive(Debug)]
pub struct ResponseGuard(Arc<UploadState>);

/// Timeout of a response's header.
#[derive(Debug)]
pub struct ResponseTimer {
    state: Arc<UploadState>,
    /// Maximum wait for the client, for a request whose body is not being read. While the body is read, the body's own timeout ends
    /// the request earlier.
    client: Duration,
}

impl UploadTimer {
    /// Creates a timer of `limit` for each piece of a body, and its status.
    pub fn within(limit: Duration) -> (Self, UploadStatus) {
        let state = Arc::new(UploadState {
            stalled: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            is_answered: AtomicBool::new(false),
            turn: Mutex::new(Turn { is_clients: false, since: Instant::now() }),
        });
        (Self { stall: StallTimeout::new(limit), state: Arc::clone(&state) }, UploadStatus(state))
    }

    /// Returns a timer of the same upload, for a retry of the request.
    pub(crate) fn restarted(&self) -> Self {
        Self { stall: StallTimeout::new(self.stall.limit), state: Arc::clone(&self.state) }
    }

    /// Stops the timer: data or the end of the body arrived.
    pub fn record_progress(&mut self) {
        self.stall.record_progress();
        self.state.set_waiting_for_upstream();
    }

    /// Records that the body is invalid, or that the client cancelled it.
    pub fn mark_failed(&mut self) {
        self.state.broken.store(true, Relaxed);
    }

    /// Completes when no data arrived within the timeout.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.state.set_waiting_for_client();
        loop {
            ready!(self.stall.poll(cx));
            if !self.state.is_answered.load(Relaxed) {
                self.state.stalled.store(true, Relaxed);
                return Poll::Ready(());
            }
            self.stall.record_progress();
        }
    }

    /// Starts the wait for the response.
    pub fn awaited(&self) -> ResponseTimer {
        self.state.set_waiting_for_upstream();
        ResponseTimer { state: Arc::clone(&self.state), client: 2 * self.stall.limit }
    }
}

impl Drop for UploadTimer {
    fn drop(&mut self) {
        // The rest of the body is no longer needed.
        self.state.set_waiting_for_upstream();
    }
}

impl ResponseTimer {
    /// Completes when the upstream has exceeded `limit`: since the end of the body, or since it accepted the last available data.
    /// Time spent waiting for the client does not count.
    pub async fn timed_out(self, limit: Duration) {
        loop {
            let Turn { is_clients, since } = *self.state.turn.lock();
            let until = since + if is_clients { self.client } else { limit };
            let now = Instant::now();
            if until <= now {
                return;
            }
            // A turn that starts during this sleep cannot exceed its limit before the next check.
            tokio::time::sleep_until(until.min(now + limit)).await;
        }
    }
}

impl UploadStatus {
    /// Returns whether the body stalled or failed.
    pub fn has_failed(&self) -> bool {
        self.has_stalled() || self.is_broken()
    }

    pub(crate) fn has_stalled(&self) -> bool {
        self.0.stalled.load(Relaxed)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.0.broken.load(Relaxed)
    }

    /// Marks the response as in progress until the result is dropped.
    pub fn answering(&self) -> ResponseGuard {
        self.0.is_answered.store(true, Relaxed);
        ResponseGuard(Arc::clone(&self.0))
    }
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.0.is_answered.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn stall_timer_restarts_after_each_wait() {
        let mut stall = StallTimeout::new(LIMIT);
        for _ in 0..3 {
            let waited = tokio::time::timeout(LIMIT / 2, poll_fn(|cx| stall.poll(cx))).await;
            assert!(waited.is_err());
            stall.record_progress();
        }
        let began = Instant::now();
        poll_fn(|cx| stall.poll(cx)).await;
        assert_eq!(began.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn upload_timer_is_suspended_during_the_response() {
        let (mut upload, uploading) = UploadTimer::within(LIMIT);
        let answering = uploading.answering();
        let waited = tokio::time::timeout(10 * LIMIT + LIMIT / 2, poll_fn(|cx| upload.poll(cx))).await;
        assert!(waited.is_err() && !uploading.has_stalled());
        drop(answering);
        let began = Instant::now();
        poll_fn(|cx| upload.poll(cx)).await;
        assert!(uploading.has_stalled() && began.elapsed() <= LIMIT, "{:?}", began.elapsed());
    }
    #[tokio::test(start_paused = true)]
    async fn response_timer_is_suspended_while_the_client_uploads() {
        const ANSWER: Duration = Duration::from_secs(10);
        let (mut upload, _uploading) = UploadTimer::within(LIMIT);
        let mut timed_out = pin!(upload.awaited().timed_out(ANSWER));
        for _ in 0..20 {
            let client = async {
                // No data arrives at first. Some data arrives later.
                let waited = tokio::time::timeout(LIMIT / 2, poll_fn(|cx| upload.poll(cx))).await;
                assert!(waited.is_err());
                upload.record_progress();
            };
            tokio::select! {
                () = &mut timed_out => panic!("it is the client that is waited for"),
                () = client => {}
            }
            // The upstream accepts the data as slowly as its limit permits.
            assert!(tokio::time::timeout(ANSWER * 9 / 10, &mut timed_out).await.is_err());
        }
        upload.record_progress();
        let ended = Instant::now();
        timed_out.await;
        assert_eq!(ended.elapsed(), ANSWER);
    }

    #[tokio::test(start_paused = true)]
    async fn upstream_that_reads_nothing_exceeds_the_response_timeout() {
        let (mut upload, _uploading) = UploadTimer::within(LIMIT);
        let timed_out = upload.awaited().timed_out(LIMIT / 6);
        let began = Instant::now();
        timed_out.await;
        assert_eq!(began.elapsed(), LIMIT / 6, "nothing was asked of the client");
        // The wait for a client must end even if nothing reads the body.
        let timed_out = upload.awaited().timed_out(LIMIT / 6);
        assert!(poll_fn(|cx| Poll::Ready(upload.poll(cx))).await.is_pending());
        let began = Instant::now();
        timed_out.await;
        assert_eq!(began.elapsed(), 2 * LIMIT);
    }
}
