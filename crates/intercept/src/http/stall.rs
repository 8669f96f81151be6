//! Waiting for a peer that does nothing, and its end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// How long something is waited for, each time anew.
#[derive(Debug)]
pub(crate) struct Stall {
    limit: Duration,
    /// Made when something is first waited for.
    sleep: Option<Pin<Box<Sleep>>>,
    waits: bool,
}

impl Stall {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, sleep: None, waits: false }
    }

    /// What was waited for is there.
    pub(crate) fn over(&mut self) {
        self.waits = false;
    }

    /// Ready once it was waited for too long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let until = Instant::now() + self.limit;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if !self.waits {
            self.waits = true;
            sleep.as_mut().reset(until);
        }
        sleep.as_mut().poll(cx)
    }
}

/// What both ends of an exchange know of the request's body.
#[derive(Debug, Default)]
struct Known {
    stalled: AtomicBool,
    is_answered: AtomicBool,
}

/// The wait for a request's body. While the answer is under way the client may be silent, as in a stream that only the upstream
/// still speaks on; whether that one does is the answer's concern.
#[derive(Debug)]
pub(crate) struct Upload {
    stall: Stall,
    known: Arc<Known>,
}

/// Whether an [`Upload`] came to its end for its silence.
#[derive(Debug)]
pub(crate) struct Uploading(Arc<Known>);

/// An answer that is under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Answering(Arc<Known>);

impl Upload {
    pub(crate) fn within(limit: Duration) -> (Self, Uploading) {
        let known = Arc::<Known>::default();
        (Self { stall: Stall::new(limit), known: Arc::clone(&known) }, Uploading(known))
    }

    /// Something came.
    pub(crate) fn over(&mut self) {
        self.stall.over();
    }

    /// Ready once nothing came for too long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.stall.poll(cx));
            if !self.known.is_answered.load(Relaxed) {
                self.known.stalled.store(true, Relaxed);
                return Poll::Ready(());
            }
            self.stall.over();
        }
    }
}

impl Uploading {
    pub(crate) fn has_stalled(&self) -> bool {
        self.0.stalled.load(Relaxed)
    }

    pub(crate) fn answering(&self) -> Answering {
        self.0.is_answered.store(true, Relaxed);
        Answering(Arc::clone(&self.0))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.is_answered.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn each_wait_counts_anew() {
        let mut stall = Stall::new(LIMIT);
        for _ in 0..3 {
            let waited = tokio::time::timeout(LIMIT / 2, poll_fn(|cx| stall.poll(cx))).await;
            assert!(waited.is_err());
            stall.over();
        }
        let began = Instant::now();
        poll_fn(|cx| stall.poll(cx)).await;
        assert_eq!(began.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_may_be_silent_while_it_is_answered() {
        let (mut upload, uploading) = Upload::within(LIMIT);
        let answering = uploading.answering();
        let waited = tokio::time::timeout(10 * LIMIT + LIMIT / 2, poll_fn(|cx| upload.poll(cx))).await;
        assert!(waited.is_err() && !uploading.has_stalled());
        drop(answering);
        let began = Instant::now();
        poll_fn(|cx| upload.poll(cx)).await;
        assert!(uploading.has_stalled() && began.elapsed() <= LIMIT, "{:?}", began.elapsed());
    }
}
