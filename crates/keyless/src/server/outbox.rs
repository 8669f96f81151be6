//! Replies of one connection: made anywhere, written by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Instant;

use futures_util::task::AtomicWaker;
use keys::SignError;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::Metrics;
use crate::metrics::Refusal;
use crate::stage::{Asker, StageError};
use crate::wire::{self, ErrorCode, opcode};

/// Octets of replies that wait for a peer to read them: 8,000 signatures. A peer that asks on and reads none of them is
/// given up.
const WAITING_MAX: usize = 8 << 20;

/// The replies that are not written yet, and who is told of them.
pub(super) struct Outbox {
    waiting: Mutex<Vec<u8>>,
    overflowed: AtomicBool,
    closed: AtomicBool,
    gone: CancellationToken,
    in_flight: AtomicUsize,
    waker: AtomicWaker,
    metrics: Metrics,
}

impl Outbox {
    pub(super) fn new(metrics: Metrics) -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            overflowed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            gone: CancellationToken::new(),
            in_flight: AtomicUsize::new(0),
            waker: AtomicWaker::new(),
            metrics,
        })
    }

    /// Who writes them.
    pub(super) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Takes all that wait in exchange for an empty `buffer`. False when none do.
    pub(super) fn take(&self, buffer: &mut Vec<u8>) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            return false;
        }
        std::mem::swap(&mut *waiting, buffer);
        true
    }

    /// Whether the peer reads too little of what it asks for.
    pub(super) fn has_overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// Requests read and not answered yet.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Nobody takes replies any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.gone.cancel();
        *self.waiting.lock() = Vec::new();
    }

    /// Until [`Self::close`].
    pub(super) async fn gone(&self) {
        self.gone.cancelled().await;
    }

    fn reply(&self, id: u32, opcode: u8, payload: &[u8]) -> Result<(), wire::TooLong> {
        {
            let mut waiting = self.waiting.lock();
            if self.closed.load(Ordering::Relaxed) {
                return Ok(());
            }
            if waiting.len() > WAITING_MAX {
                self.overflowed.store(true, Ordering::Relaxed);
            } else {
                wire::reply(id, opcode, payload, &mut waiting)?;
            }
        }
        self.waker.wake();
        Ok(())
    }

    /// Answers what is no operation.
    pub(super) fn refuse(&self, id: u32, code: ErrorCode) {
        self.metrics.error(None, code);
        self.error(id, code);
    }

    fn error(&self, id: u32, code: ErrorCode) {
        // One octet always fits.
        let _ = self.reply(id, opcode::ERROR, &[code as u8]);
    }
}

/// One request under way. It is answered once: dropped without an answer (its work was given up), it says so.
pub(super) struct Ticket {
    outbox: Arc<Outbox>,
    id: u32,
    place: usize,
    began: Instant,
    span: Span,
    open: bool,
}

impl Ticket {
    /// `place` is the operation's among [`crate::operation::OPERATIONS`].
    pub(super) fn new(outbox: &Arc<Outbox>, id: u32, place: usize, span: Span) -> Self {
        outbox.in_flight.fetch_add(1, Ordering::Relaxed);
        outbox.metrics.began(place);
        Self { outbox: Arc::clone(outbox), id, place, began: Instant::now(), span, open: true }
    }

    pub(super) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    pub(super) fn reply(mut self, opcode: u8, payload: &[u8]) {
        match self.outbox.reply(self.id, opcode, payload) {
            Ok(()) => self.end(),
            Err(wire::TooLong) => self.fail(ErrorCode::Format),
        }
    }

    pub(super) fn fail(mut self, code: ErrorCode) {
        self.give_error(code);
    }

    /// Refuses what was asked for rightly: there is too much to do.
    pub(super) fn overloaded(mut self, refusal: Refusal) {
        self.outbox.metrics.refused(refusal);
        self.give_error(ErrorCode::Internal);
    }

    pub(super) fn signed(self, signed: Result<Vec<u8>, SignError>) {
        match signed {
            Ok(signature) => self.reply(opcode::SUCCESS, &signature),
            Err(error) => {
                self.span.in_scope(|| tracing::debug!(%error, "not signed"));
                self.fail(match error {
                    SignError::Failed(_) => ErrorCode::Cryptography,
                    SignError::Late | SignError::Unavailable(_) => ErrorCode::Internal,
                });
            }
        }
    }

    fn give_error(&mut self, code: ErrorCode) {
        self.outbox.metrics.error(Some(self.place), code);
        self.outbox.error(self.id, code);
        self.span.in_scope(|| tracing::debug!(?code, "answered with an error"));
        self.end();
    }

    fn end(&mut self) {
        self.open = false;
        let took = self.began.elapsed();
        self.outbox.metrics.ended(self.place, took);
        self.span.in_scope(|| tracing::debug!(took_us = took.as_micros() as u64, "answered"));
        // After the reply: who drains looks at replies once nothing is in flight.
        if self.outbox.in_flight.fetch_sub(1, Ordering::Release) == 1 {
            self.outbox.waker.wake();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.open {
            self.give_error(ErrorCode::Internal);
        }
    }
}

impl Asker for Ticket {
    fn is_there(&self) -> bool {
        !self.outbox.closed.load(Ordering::Relaxed)
    }

    fn answer(self, signed: Result<Vec<u8>, StageError>) {
        self.signed(signed.map_err(|error| match error {
            StageError::Late => SignError::Late,
            StageError::Key(error) => error,
        }));
    }
}
