//! One request: what it asks for is looked up, checked, and done or handed on. Nothing here waits.

use std::sync::Arc;
use std::time::Instant;

use keys::{Scheme, TicketError};
use tracing::{Level, Span};

use super::Shared;
use super::outbox::{Outbox, Ticket};
use crate::Key;
use crate::metrics::Refusal;
use crate::operation::{self, OPERATIONS, Operation};
use crate::stage::Job;
use crate::wire::{ErrorCode, Header, Items, MAJOR, Malformed, opcode};

/// Requests to keys elsewhere that may be under way, over all keys and connections: 2 KB each.
pub const ELSEWHERE_MAX: usize = 16_384;

/// Characters of a visitor's request id that are believed.
const REQUEST_ID_MAX: usize = 128;

impl Shared {
    /// Takes one message.
    ///
    /// # Errors
    /// [`Malformed`]: the connection is to end without an answer.
    pub(super) fn take(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        header: Header,
        body: &[u8],
    ) -> Result<(), Malformed> {
        if header.major != MAJOR {
            outbox.refuse(header.id, ErrorCode::VersionMismatch);
            return Ok(());
        }
        let items = Items::parse(body)?;
        match operation::place(items.opcode) {
            Ok(place) => self.begin(Ticket::new(outbox, header.id, place, span(&items)), place, &items),
            Err(code) => outbox.refuse(header.id, code),
        }
        Ok(())
    }

    fn begin(self: &Arc<Self>, ticket: Ticket, place: usize, items: &Items<'_>) {
        match OPERATIONS[place].2 {
            Operation::Ping => ticket.reply(opcode::PONG, items.payload),
            Operation::Seal => self.seal(ticket, items.payload, true),
            Operation::Unseal => self.seal(ticket, items.payload, false),
            Operation::RsaDecrypt => ticket.fail(ErrorCode::Cryptography),
            Operation::Sign(scheme) => self.sign(ticket, scheme, items),
        }
    }

    fn seal(&self, ticket: Ticket, payload: &[u8], seal: bool) {
        let Some(keys) = &self.tickets else { return ticket.fail(ErrorCode::Internal) };
        let now = Instant::now();
        let done = if seal { keys.seal(now, payload) } else { keys.open(now, payload) };
        match done {
            Ok(done) => ticket.reply(opcode::SUCCESS, &done),
            Err(TicketError::Retired) => ticket.fail(ErrorCode::Expired),
            Err(TicketError::Forged) => ticket.fail(ErrorCode::Cryptography),
            Err(TicketError::Library) => ticket.fail(ErrorCode::Internal),
        }
    }

    fn sign(self: &Arc<Self>, ticket: Ticket, scheme: Scheme, items: &Items<'_>) {
        let Some(ski) = &items.ski else { return ticket.fail(ErrorCode::Internal) };
        let Some(key) = self.keys.find(ski) else { return ticket.fail(ErrorCode::KeyNotFound) };
        // Before the key is touched: under another kind of key the signature would be one over what the caller chose for
        // another algorithm.
        if scheme.check(key.kind, items.payload.len()).is_err() {
            return ticket.fail(ErrorCode::Cryptography);
        }
        let input: Box<[u8]> = items.payload.into();
        let deadline = ticket.began() + self.options.deadline;
        let Some(here) = key.here.clone() else { return self.sign_elsewhere(ticket, key, scheme, input) };
        if let Err(job) =
            self.stage.submit(key.cost, Job { key: here, scheme, input, deadline, asker: ticket })
        {
            job.asker.overloaded(Refusal::Stage);
        }
    }

    /// By a key that somebody else holds: a task of its own, for it waits.
    fn sign_elsewhere(self: &Arc<Self>, ticket: Ticket, key: Arc<Key>, scheme: Scheme, input: Box<[u8]>) {
        let Some(of_key) = key.place() else { return ticket.overloaded(Refusal::Key) };
        let Some(of_all) = self.elsewhere.take(ELSEWHERE_MAX) else {
            return ticket.overloaded(Refusal::Elsewhere);
        };
        let deadline = ticket.began() + self.options.deadline;
        self.tracker.spawn(async move {
            let _live = telemetry::tasks::guard("keyless-elsewhere");
            let _places = (of_key, of_all);
            let outbox = Arc::clone(ticket.outbox());
            let signing = key.signer.sign_digest(scheme, &input, deadline);
            tokio::select! {
                () = outbox.gone() => {}
                signed = tokio::time::timeout_at(deadline.into(), signing) => {
                    ticket.signed(signed.unwrap_or(Err(keys::SignError::Late)));
                }
            }
        });
    }
}

/// What a request is known by, for whoever looks (`--log keyless=debug`).
fn span(items: &Items<'_>) -> Span {
    if !tracing::enabled!(Level::DEBUG) {
        return Span::none();
    }
    let opcode = operation::place(items.opcode).map_or("unknown", |place| OPERATIONS[place].1);
    let request_id = items.context.and_then(request_id).unwrap_or_default();
    let trace = items.trace.map(shown).unwrap_or_default();
    let ski = items.ski.map(|ski| ski.to_string()).unwrap_or_default();
    tracing::debug_span!("keyless", opcode, ski, request_id, trace)
}

/// `request_id` of the context.
fn request_id(context: &[u8]) -> Option<String> {
    let context: serde_json::Value = serde_json::from_slice(context).ok()?;
    let id = context.get("request_id")?.as_str()?;
    Some(id.chars().take(REQUEST_ID_MAX).filter(|c| !c.is_control()).collect())
}

/// A span context as it is when it is text, else in hexadecimal.
fn shown(trace: &[u8]) -> String {
    let part = &trace[..trace.len().min(REQUEST_ID_MAX)];
    match std::str::from_utf8(part) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => part.iter().map(|octet| format!("{octet:02x}")).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_of_a_request_is_bounded_and_plain() {
        assert_eq!(request_id(br#"{"request_id":"abc","x":1}"#).as_deref(), Some("abc"));
        assert_eq!(request_id(br#"{"request_id":"a\nb"}"#).as_deref(), Some("ab"));
        for none in [&b"{"[..], b"[]", b"{}", br#"{"request_id":7}"#] {
            assert_eq!(request_id(none), None);
        }
        assert_eq!(shown(b"3b:1:0:1"), "3b:1:0:1");
        assert_eq!(shown(&[0, 0xff]), "00ff");
        assert_eq!(shown(&[b'a'; 1_000]).len(), REQUEST_ID_MAX);
    }
}
