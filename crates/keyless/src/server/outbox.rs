//! Replies of one connection: produced by any task, and written by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::entry::{Entry, Failure};
use crate::metrics::Metrics;
use crate::tenant::Client;
use crate::wire::{self, ErrorCode, opcode};

/// Maximum bytes of replies that wait for the peer, enough for 8,000 signatures. A peer that sends requests and reads no replies is
/// disconnected.
const WAITING_MAX: usize = 8 << 20;

/// Replies that are not written yet, and the waker of the writing task.
pub(super) struct Outbox {
    waiting: Mutex<Vec<u8>>,
    overflowed: AtomicBool,
    closed: AtomicBool,
    cancelled: CancellationToken,
    in_flight: AtomicUsize,
    waker: AtomicWaker,
    metrics: Metrics,
    client: Client,
}

impl Outbox {
    pub(super) fn new(metrics: Metrics, client: Client) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            overflowed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            cancelled: CancellationToken::new(),
            in_flight: AtomicUsize::new(0),
            waker: AtomicWaker::new(),
            metrics,
            client,
        })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns whether the outbox still accepts replies.
    pub(super) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    /// Registers the waker of the writing task.
    pub(super) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Swaps the waiting replies with the empty `buffer`. Returns false if there are none.
    pub(super) fn take(&self, buffer: &mut Vec<u8>) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            return false;
        }
        std::mem::swap(&mut *waiting, buffer);
        true
    }

    /// Returns whether too many replies wait, because the peer does not read.
    pub(super) fn has_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// Returns the number of unanswered requests.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Closes the outbox: later replies are dropped.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.cancelled.cancel();
        *self.waiting.lock() = Vec::new();
    }

    /// Waits until [`Self::close`].
    pub(super) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Queues a complete message.
    fn put(&self, message: &[u8]) {
        {
            let mut waiting = self.waiting.lock();
            if self.closed.load(Ordering::Relaxed) {
                return;
            }
            if waiting.len() > WAITING_MAX {
                self.overflowed.store(true, Ordering::Relaxed);
            } else {
                waiting.extend_from_slice(message);
            }
        }
        self.waker.wake();
    }

    /// Sends an error reply for a request without a known operation, and counts the error.
    pub(super) fn refuse(&self, id: u32, code: ErrorCode) {
        self.metrics.error(None, code.name());
        self.error(id, code);
    }

    fn error(&self, id: u32, code: ErrorCode) {
        let mut message = Vec::new();
        // One byte always fits.
        let _ = wire::reply(id, opcode::ERROR, &[code as u8], &mut message);
        self.put(&message);
    }
}

/// A request of a connection, which is answered exactly once. Dropping it without a reply sends an error.
pub(super) struct Ticket {
    outbox: Arc<Outbox>,
    id: u32,
    pub(super) entry: Entry,
    open: bool,
}

impl Ticket {
    pub(super) fn new(outbox: &Arc<Outbox>, id: u32, entry: Entry) -> Self {
        outbox.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { outbox: Arc::clone(outbox), id, entry, open: true }
    }

    pub(super) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    pub(super) fn reply(mut self, opcode: u8, payload: &[u8]) {
        let mut message = Vec::new();
        match wire::reply(self.id, opcode, payload, &mut message) {
            Ok(()) => {
                // Before the reply is sent: the client may then query the trace.
                self.entry.done();
                self.outbox.put(&message);
                self.end();
            }
            Err(wire::TooLong) => {
                self.fail(Failure::TooLong { given: payload.len(), most: wire::BODY_MAX });
            }
        }
    }

    pub(super) fn fail(mut self, failure: Failure) {
        self.send_error(&failure);
    }

    fn send_error(&mut self, failure: &Failure) {
        if !self.outbox.is_open() {
            // The connection is closed, so no reply is sent.
            self.entry.cancelled();
            return self.end();
        }
        let code = failure.keyless();
        self.entry.failed(failure, code.name());
        self.outbox.error(self.id, code);
        self.end();
    }

    fn end(&mut self) {
        self.open = false;
        // After the reply: a draining connection checks for replies once nothing is in flight.
        if self.outbox.in_flight.fetch_sub(1, Ordering::Release) == 1 {
            self.outbox.waker.wake();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.open {
            self.send_error(&Failure::Stopping);
        }
    }
}
