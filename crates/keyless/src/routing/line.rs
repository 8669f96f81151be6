//! A connection to a node, and the requests that are under way by it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::error::PeerError;
use crate::in_flight::Counts;
use crate::limits::{NODE_MAX, NODE_PER_TENANT_MAX};
use crate::native::proto::SignRequest;

/// What is answered to a request, once.
pub(super) type Answer = Result<Vec<u8>, PeerError>;

/// Whether there is a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// None is wanted.
    Unwanted,
    /// The first, or the next after a good one, is being made.
    Connecting,
    Up,
    Down,
}

/// The connection. What it carries is bounded in all and for each tenant, whichever nodes it is for.
pub(super) struct Line {
    next: AtomicU64,
    in_flight: AtomicUsize,
    queue: Mutex<Queue>,
}

struct Queue {
    /// Of the connection: what an earlier one's task still says is passed over.
    generation: u64,
    state: State,
    sender: Option<mpsc::Sender<SignRequest>>,
    waiting: HashMap<u64, oneshot::Sender<Answer>>,
    by_tenant: Counts,
}

impl Line {
    pub(super) fn new() -> Self {
        let queue = Queue {
            generation: 0,
            state: State::Unwanted,
            sender: None,
            waiting: HashMap::new(),
            by_tenant: Counts::default(),
        };
        Self { next: AtomicU64::new(0), in_flight: AtomicUsize::new(0), queue: Mutex::new(queue) }
    }

    pub(super) fn state(&self) -> State {
        self.queue.lock().state
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    /// A connection is being made; what is under way by one before is lost. Its number, which the rest is said with.
    pub(super) fn begin(&self) -> u64 {
        let (generation, lost) = {
            let mut queue = self.queue.lock();
            queue.generation += 1;
            (queue.sender, queue.state) = (None, State::Connecting);
            (queue.generation, std::mem::take(&mut queue.waiting))
        };
        drop(lost);
        generation
    }

    /// Requests are taken from now on, by this way. False where there is another connection by now.
    pub(super) fn open(&self, generation: u64, sender: mpsc::Sender<SignRequest>) -> bool {
        let mut queue = self.queue.lock();
        let is_current = queue.generation == generation;
        if is_current {
            (queue.sender, queue.state) = (Some(sender), State::Up);
        }
        is_current
    }

    /// Everything under way is lost. False where there is another connection by now, which stays.
    pub(super) fn close(&self, generation: u64, state: State) -> bool {
        let lost = {
            let mut queue = self.queue.lock();
            if queue.generation != generation {
                return false;
            }
            (queue.sender, queue.state) = (None, state);
            std::mem::take(&mut queue.waiting)
        };
        drop(lost);
        true
    }

    /// Gives an answer to whoever waits for it; nobody may.
    pub(super) fn answer(&self, id: u64, answer: Answer) {
        let waiting = self.queue.lock().waiting.remove(&id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }

    /// Sends a request of a tenant; its id is replaced.
    ///
    /// # Errors
    /// [`PeerError::Full`], [`PeerError::Unsent`]
    pub(super) fn put(
        &self,
        mut request: SignRequest,
        tenant: &str,
    ) -> Result<(u64, oneshot::Receiver<Answer>), PeerError> {
        let (sender, answer) = oneshot::channel();
        let id = self.next.fetch_add(1, Relaxed);
        let mut queue = self.queue.lock();
        let Some(way) = &queue.sender else { return Err(PeerError::Unsent) };
        if self.in_flight() >= NODE_MAX || queue.by_tenant.of(tenant) >= NODE_PER_TENANT_MAX {
            return Err(PeerError::Full);
        }
        request.id = id;
        match way.try_send(request) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(PeerError::Full),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(PeerError::Unsent),
        }
        queue.waiting.insert(id, sender);
        queue.by_tenant.add(tenant);
        self.in_flight.fetch_add(1, Relaxed);
        Ok((id, answer))
    }

    /// Forgets a request; one that is under way still is taken back.
    pub(super) fn forget(&self, id: u64, tenant: &str) {
        let mut queue = self.queue.lock();
        queue.by_tenant.remove(tenant);
        self.in_flight.fetch_sub(1, Relaxed);
        let is_under_way = queue.waiting.remove(&id).is_some();
        if let Some(way) = queue.sender.as_ref().filter(|_| is_under_way) {
            // It goes on there if this finds no room: until its deadline.
            let _ = way.try_send(SignRequest { id, cancel: true, ..SignRequest::default() });
        }
    }
}
