//! Who waits for the reply to a request, by whichever protocol.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use keys::SignError;

use super::entry::{Entry, Failure};
use super::outbox::Ticket;
use super::replies::Call;
use crate::stage::{Asker, StageError};
use crate::wire::opcode;

/// Whoever waits for an answer. It gets one in any case: dropped, it says that the service stops.
pub(super) enum Caller {
    /// By the Keyless protocol.
    Keyless(Ticket),
    /// By the native one.
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

    pub(super) fn done(self, octets: Vec<u8>) {
        match self {
            Self::Keyless(ticket) => ticket.reply(opcode::SUCCESS, &octets),
            Self::Native(call) => call.done(octets),
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
            Ok(octets) => self.done(octets),
            Err(error) => self.fail(error.into()),
        }
    }

    /// Whether another node asks, for whom it is asked itself: nothing is passed on twice.
    pub(super) fn is_node(&self) -> bool {
        match self {
            Self::Keyless(_) => false,
            Self::Native(call) => call.is_node,
        }
    }

    /// Until nobody waits any more.
    pub(super) fn gone(&self) -> BoxFuture<'static, ()> {
        match self {
            Self::Keyless(ticket) => {
                let outbox = Arc::clone(ticket.outbox());
                Box::pin(async move { outbox.gone().await })
            }
            Self::Native(call) => {
                let wanted = call.wanted();
                Box::pin(async move { wanted.gone().await })
            }
        }
    }
}

impl Asker for Caller {
    fn is_there(&self) -> bool {
        match self {
            Self::Keyless(ticket) => ticket.outbox().is_there(),
            Self::Native(call) => call.is_wanted(),
        }
    }

    fn taken(&mut self) -> Duration {
        self.entry_mut().taken()
    }

    fn answer(self, signed: Result<Vec<u8>, StageError>) {
        self.end(signed.map_err(|error| match error {
            StageError::Late => SignError::Late,
            StageError::Key(error) => error,
        }));
    }
}
