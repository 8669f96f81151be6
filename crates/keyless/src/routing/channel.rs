//! The connection to a node, and its pending requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::error::PeerError;
use crate::in_flight::TenantCounts;
use crate::limits::{NODE_MAX, NODE_PER_TENANT_MAX};
use crate::native::proto::SignRequest;

pub(super) type Reply = Result<Vec<u8>, PeerError>;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ConnectionState {
    /// No connection is needed.
    Unwanted,
    /// A connection is being opened: the first one, or one after the loss of a connection that worked.
    Connecting,
    Up,
    Down,
}

/// The connection to a node. Its requests are limited in total and for each tenant, including requests that the node forwards to
/// others.
pub(super) struct Channel {
    next: AtomicU64,
    in_flight: AtomicUsize,
    pending: Mutex<PendingReplies>,
}

struct PendingReplies {
    /// Number of the current connection. Messages from tasks of earlier connections are ignored.
    generation: u64,
    state: ConnectionState,
    sender: Option<mpsc::Sender<SignRequest>>,
    waiting: HashMap<u64, oneshot::Sender<Reply>>,
    by_tenant: TenantCounts,
}

impl Channel {
    pub(super) fn new() -> Self {
        let pending = PendingReplies {
            generation: 0,
            state: ConnectionState::Unwanted,
            sender: None,
            waiting: HashMap::new(),
            by_tenant: TenantCounts::default(),
        };
        Self { next: AtomicU64::new(0), in_flight: AtomicUsize::new(0), pending: Mutex::new(pending) }
    }

    pub(super) fn state(&self) -> ConnectionState {
        self.pending.lock().state
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Relaxed)
    }

    /// Records that a connection is being opened. Pending requests of the previous connection fail. Returns the number of the new
    /// connection, which the other methods expect as `generation`.
    pub(super) fn begin(&self) -> u64 {
        let (generation, lost) = {
            let mut pending = self.pending.lock();
            pending.generation += 1;
            (pending.sender, pending.state) = (None, ConnectionState::Connecting);
            (pending.generation, std::mem::take(&mut pending.waiting))
        };
        drop(lost);
        generation
    }

    /// Sends requests to `sender` from now on. Returns false if a newer connection exists.
    pub(super) fn open(&self, generation: u64, sender: mpsc::Sender<SignRequest>) -> bool {
        let mut pending = self.pending.lock();
        let is_current = pending.generation == generation;
        if is_current {
            (pending.sender, pending.state) = (Some(sender), ConnectionState::Up);
        }
        is_current
    }

    /// Fails all pending requests. Returns false, without effect, if a newer connection exists.
    pub(super) fn close(&self, generation: u64, state: ConnectionState) -> bool {
        let lost = {
            let mut pending = self.pending.lock();
            if pending.generation != generation {
                return false;
            }
            (pending.sender, pending.state) = (None, state);
            std::mem::take(&mut pending.waiting)
        };
        drop(lost);
        true
    }

    /// Delivers a reply to the request with this ID. A reply to a cancelled request is dropped.
    pub(super) fn complete(&self, id: u64, reply: Reply) {
        let waiting = self.pending.lock().waiting.remove(&id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(reply);
        }
    }

    /// Sends a request of a tenant, with a new ID.
    ///
    /// # Errors
    /// [`PeerError::Full`], [`PeerError::Unsent`]
    pub(super) fn send(
        &self,
        mut request: SignRequest,
        tenant: &str,
    ) -> Result<(u64, oneshot::Receiver<Reply>), PeerError> {
        let (reply, answer) = oneshot::channel();
        let id = self.next.fetch_add(1, Relaxed);
        let mut pending = self.pending.lock();
        let Some(sender) = &pending.sender else { return Err(PeerError::Unsent) };
        if self.in_flight() >= NODE_MAX || pending.by_tenant.of(tenant) >= NODE_PER_TENANT_MAX {
            return Err(PeerError::Full);
        }
        request.id = id;
        match sender.try_send(request) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => return Err(PeerError::Full),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(PeerError::Unsent),
        }
        pending.waiting.insert(id, reply);
        pending.by_tenant.add(tenant);
        self.in_flight.fetch_add(1, Relaxed);
        Ok((id, answer))
    }

    /// Drops a pending request, and cancels it at the node if the reply is outstanding.
    pub(super) fn abandon(&self, id: u64, tenant: &str) {
        let mut pending = self.pending.lock();
        pending.by_tenant.remove(tenant);
        self.in_flight.fetch_sub(1, Relaxed);
        let is_under_way = pending.waiting.remove(&id).is_some();
        if let Some(sender) = pending.sender.as_ref().filter(|_| is_under_way) {
            // If the queue is full, the request continues at the node until its deadline.
            let _ = sender.try_send(SignRequest { id, cancel: true, ..SignRequest::default() });
        }
    }
}
