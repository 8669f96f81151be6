//! The caller of a request, by protocol.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use keys::SignError;

use super::entry::{Entry, Failure};
use super::outbox::Ticket;
use super::replies::Call;
use crate::key_set::Requester;
use crate::stage::{Responder, StageError};
use crate::wire::opcode;

/// The caller that waits for a reply. Dropping it without a reply sends the error that the service stops.
pub(super) enum Caller {
    /// A caller that uses the Keyless protocol.
    Keyless(Ticket),
    /// A caller that uses the native protocol.
    Native(Call),
}

impl Caller {
    pub(super) fn entry(&self) -> &Entry {
        match self {
            Self::Keyless(ticket) => &ticket.entry,
            Self::Native(call) => &call.entry,
        }
    }

    pub(super) fn entry_mut(&mut self) -> &mut Entry {
        match self {
            Self::Keyless(ticket) => &mut ticket.entry,
            Self::Native(call) => &mut call.entry,
        }
    }

    pub(super) fn done(self, bytes: Vec<u8>) {
        match self {
            Self::Keyless(ticket) => ticket.reply(opcode::SUCCESS, &bytes),
            Self::Native(call) => call.done(bytes),
        }
    }

    pub(super) fn fail(self, failure: Failure) {
        match self {
            Self::Keyless(ticket) => ticket.fail(failure),
            Self::Native(call) => call.fail(failure),
        }
    }

    pub(super) fn end(self, done: Result<Vec<u8>, impl Into<Failure>>) {
        match done {
            Ok(bytes) => self.done(bytes),
            Err(error) => self.fail(error.into()),
        }
    }

    /// Returns whether a client or another node sent the request. A request of another node is not routed again.
    pub(super) fn requester(&self) -> Requester {
        match self {
            Self::Native(call) if call.is_node => Requester::Node,
            Self::Keyless(_) | Self::Native(_) => Requester::Client,
        }
    }

    /// Waits until the caller cancels.
    pub(super) fn cancelled(&self) -> BoxFuture<'static, ()> {
        match self {
            Self::Keyless(ticket) => {
                let outbox = Arc::clone(ticket.outbox());
                Box::pin(async move { outbox.cancelled().await })
            }
            Self::Native(call) => {
                let signal = call.cancel_signal();
                Box::pin(async move { signal.cancelled().await })
            }
        }
    }
}

impl Responder for Caller {
    fn is_waiting(&self) -> bool {
        match self {
            Self::Keyless(ticket) => ticket.outbox().is_open(),
            Self::Native(call) => call.is_wanted(),
        }
    }

    fn started(&mut self) -> Duration {
        self.entry_mut().started()
    }

    fn respond(self, signed: Result<Vec<u8>, StageError>) {
        self.end(signed.map_err(|error| match error {
            StageError::Late => SignError::Late,
            StageError::Key(error) => error,
        }));
    }
}
