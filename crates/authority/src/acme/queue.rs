//! In-memory queue of validations, and its counters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::tables::acme::AcmeAuthorization;

/// Maximum length of the in-memory queue. Further validations wait in the database.
pub(super) const WAITING_MAX: usize = 4_096;

/// Queue of the validations that wait for this node.
pub(crate) struct ValidationQueue {
    pub(super) queue: mpsc::Sender<AcmeAuthorization>,
    pub(super) receiver: Mutex<Option<mpsc::Receiver<AcmeAuthorization>>>,
    pub(super) stopped: AtomicBool,
    pub(super) running: AtomicU64,
    pub(super) proven: AtomicU64,
    pub(super) failed: AtomicU64,
}

impl Default for ValidationQueue {
    fn default() -> Self {
        let (queue, receiver) = mpsc::channel(WAITING_MAX);
        Self {
            queue,
            receiver: Mutex::new(Some(receiver)),
            stopped: AtomicBool::new(false),
            running: AtomicU64::new(0),
            proven: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }
}

/// A reserved slot in the queue.
pub(crate) struct Slot<'w>(mpsc::Permit<'w, AcmeAuthorization>);

impl Slot<'_> {
    pub(crate) fn send(self, authorization: AcmeAuthorization) {
        self.0.send(authorization);
    }
}

impl ValidationQueue {
    /// Reserves a slot. Returns `None` if the queue is full or stopped.
    pub(crate) fn slot(&self) -> Option<Slot<'_>> {
        if self.stopped.load(Ordering::SeqCst) {
            return None;
        }
        self.queue.try_reserve().ok().map(Slot)
    }
}
