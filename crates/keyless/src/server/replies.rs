//! Replies of one call of the native protocol: produced by any task, and read by the call's own task.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::entry::{Entry, Failure};
use crate::native::code_name;
use crate::routing::RelayError;

/// Payload of a reply, or the reason why the request failed.
pub(super) type Outcome = Result<Vec<u8>, Failure>;

/// Maximum bytes of finished but unread replies on one connection. Above this limit, the connection's streams accept no more
/// requests.
const UNREAD_MAX: usize = 8 << 20;
/// Bytes charged for a reply in addition to its signature.
const REPLY: usize = 64;

/// Bytes of finished but unread replies on one connection.
#[derive(Debug, Default)]
pub(super) struct Unread(AtomicUsize);

fn bytes(outcome: &Outcome) -> usize {
    REPLY + outcome.as_ref().map_or(0, Vec::len)
}

/// Finished replies, and whether the client still reads them.
pub(super) struct Replies {
    unread: Arc<Unread>,
    state: Mutex<State>,
    closed: AtomicBool,
    /// Number of cancelled requests in `under_way`. Usually 0, so that the map need not be searched.
    cancelled: AtomicUsize,
    cancellation: Notify,
    waker: AtomicWaker,
}

#[derive(Default)]
struct State {
    ready: VecDeque<(u64, Outcome)>,
    /// Pending requests of a stream by ID, and whether each was cancelled.
    under_way: Option<HashMap<u64, bool>>,
}

impl Replies {
    fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Acquire)
    }

    fn is_cancelled(&self, id: u64) -> bool {
        let is = |state: &State| state.under_way.as_ref().and_then(|ids| ids.get(&id)) == Some(&true);
        self.cancelled.load(Ordering::Acquire) > 0 && is(&self.state.lock())
    }

    fn is_wanted(&self, id: u64) -> bool {
        self.is_open() && !self.is_cancelled(id)
    }

    fn push(&self, id: u64, outcome: Outcome) {
        if self.is_open() {
            self.unread.0.fetch_add(bytes(&outcome), Ordering::Relaxed);
            let mut state = self.state.lock();
            // A later request may use this ID again.
            if state.under_way.as_mut().and_then(|ids| ids.remove(&id)) == Some(true) {
                self.cancelled.fetch_sub(1, Ordering::AcqRel);
            }
            state.ready.push_back((id, outcome));
            drop(state);
            self.waker.wake();
        }
    }
}

/// Signals that the caller no longer waits for a request.
pub(super) struct CancelSignal {
    replies: Arc<Replies>,
    id: u64,
}

impl CancelSignal {
    fn is(&self) -> bool {
        self.replies.is_wanted(self.id)
    }

    /// Waits until the client stops reading.
    pub(super) async fn cancelled(&self) {
        loop {
            // Subscribe before the check, so that no notification is missed.
            let mut word = std::pin::pin!(self.replies.cancellation.notified());
            word.as_mut().enable();
            if !self.is() {
                return;
            }
            word.await;
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        let left = self.state.get_mut().ready.iter().map(|(_, outcome)| bytes(outcome)).sum();
        self.unread.0.fetch_sub(left, Ordering::Relaxed);
    }
}

/// The reader of a call's replies. Dropping it cancels work that has not begun.
pub(super) struct Inbox {
    replies: Arc<Replies>,
    /// Requests whose replies were not read yet.
    expected: usize,
}

impl Inbox {
    pub(super) fn new(unread: Arc<Unread>) -> Self {
        let replies = Replies {
            unread,
            state: Mutex::default(),
            closed: AtomicBool::new(false),
            cancelled: AtomicUsize::new(0),
            cancellation: Notify::new(),
            waker: AtomicWaker::new(),
        };
        Self { replies: Arc::new(replies), expected: 0 }
    }

    /// Creates the inbox of a stream, whose requests can be cancelled one by one.
    pub(super) fn for_stream(unread: Arc<Unread>) -> Self {
        let inbox = Self::new(unread);
        inbox.replies.state.lock().under_way = Some(HashMap::new());
        inbox
    }

    /// Cancels the request with this ID, if it is pending.
    pub(super) fn cancel(&self, id: u64) {
        let mut state = self.replies.state.lock();
        if let Some(cancelled) = state.under_way.as_mut().and_then(|ids| ids.get_mut(&id))
            && !std::mem::replace(cancelled, true)
        {
            self.replies.cancelled.fetch_add(1, Ordering::AcqRel);
            drop(state);
            self.replies.cancellation.notify_waiters();
        }
    }

    /// Registers a request, whose reply will have this ID.
    pub(super) fn call(&mut self, id: u64, entry: Entry) -> Call {
        self.expected += 1;
        if let Some(under_way) = &mut self.replies.state.lock().under_way {
            under_way.entry(id).or_insert(false);
        }
        Call { replies: Arc::clone(&self.replies), id, entry, is_node: false, open: true }
    }

    /// Adds an error reply for a request that was not accepted.
    pub(super) fn refuse(&mut self, id: u64, failure: Failure) {
        self.expected += 1;
        self.replies.push(id, Err(failure));
    }

    /// Returns the number of requests whose replies were not read yet.
    pub(super) fn expected(&self) -> usize {
        self.expected
    }

    /// Returns whether too many unread replies wait on the connection.
    pub(super) fn is_full(&self) -> bool {
        self.replies.unread.0.load(Ordering::Relaxed) > UNREAD_MAX
    }

    /// Returns the next reply, in any order; `None` if no more are expected.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<(u64, Outcome)>> {
        if self.expected == 0 {
            return Poll::Ready(None);
        }
        self.replies.waker.register(context.waker());
        match self.replies.state.lock().ready.pop_front() {
            Some(reply) => {
                self.replies.unread.0.fetch_sub(bytes(&reply.1), Ordering::Relaxed);
                self.expected -= 1;
                Poll::Ready(Some(reply))
            }
            None => Poll::Pending,
        }
    }

    pub(super) async fn next(&mut self) -> Option<(u64, Outcome)> {
        std::future::poll_fn(|context| self.poll(context)).await
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.replies.closed.store(true, Ordering::Release);
        self.replies.cancellation.notify_waiters();
    }
}

/// A request, which is answered exactly once. Dropping it without a reply sends an error.
pub(super) struct Call {
    replies: Arc<Replies>,
    id: u64,
    pub(super) entry: Entry,
    /// Whether the caller is another node.
    pub(super) is_node: bool,
    open: bool,
}

impl Call {
    pub(super) fn cancel_signal(&self) -> CancelSignal {
        CancelSignal { replies: Arc::clone(&self.replies), id: self.id }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.replies.is_wanted(self.id)
    }

    pub(super) fn done(mut self, bytes: Vec<u8>) {
        self.open = false;
        self.entry.done();
        self.replies.push(self.id, Ok(bytes));
    }

    pub(super) fn fail(mut self, failure: Failure) {
        self.push_failure(failure);
    }

    fn push_failure(&mut self, failure: Failure) {
        // The sending node may use another path to the destination.
        let failure = match failure {
            Failure::Stopping if self.entry.is_relayed() => Failure::Relay(RelayError::NoConnection),
            failure => failure,
        };
        self.open = false;
        self.entry.failed(&failure, code_name(failure.grpc()));
        self.replies.push(self.id, Err(failure));
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // A caller that disconnected gets no reply, and its end is no error.
        if self.open && self.replies.is_open() {
            let is_cancelled = self.replies.is_cancelled(self.id);
            self.push_failure(if is_cancelled { Failure::Cancelled } else { Failure::Stopping });
        }
    }
}
