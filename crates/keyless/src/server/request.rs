//! Processing of a message of the Keyless protocol: parses the operation and dispatches it. This module never blocks.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use tracing::{Level, Span};

use super::caller::Caller;
use super::dispatch::Terms;
use super::entry::{Entry, Failure, Origin};
use super::outbox::{Outbox, Ticket};
use super::state::ServerState;
use crate::key_name::KeyName;
use crate::limits::REMOTE_PER_KEY_MAX;
use crate::native::TraceParent;
use crate::operation::{self, OPERATIONS, Operation};
use crate::refusal::Refusal;
use crate::tenant::Client;
use crate::wire::{ErrorCode, Header, MAJOR, Malformed, MessageItems, opcode};

/// Maximum characters of a request ID that is accepted from the context of a visitor.
const REQUEST_ID_MAX: usize = 128;

/// Maximum pending requests of one connection. Further requests are rejected, while reading continues. Clients of the protocol have
/// at most 1,024 pending requests. The limit exceeds the limit of one remote key, so that other keys remain usable.
const OF_CONNECTION_MAX: usize = 2 * REMOTE_PER_KEY_MAX;

impl ServerState {
    /// Processes one message.
    ///
    /// # Errors
    /// [`Malformed`]: the connection must close without a reply.
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
        let items = MessageItems::parse(body)?;
        match operation::place(items.opcode) {
            Ok(place) => {
                let tenant = outbox.client().tenant(&self.tenants);
                let origin = origin(&items, outbox.client(), tenant.name());
                let entry = Entry::new(self.metrics.clone(), tenant, place, origin);
                self.begin(Ticket::new(outbox, header.id, entry), place, &items);
            }
            Err(code) => outbox.refuse(header.id, code),
        }
        Ok(())
    }

    fn begin(self: &Arc<Self>, ticket: Ticket, place: usize, items: &MessageItems<'_>) {
        match OPERATIONS[place].2 {
            Operation::Ping => ticket.reply(opcode::PONG, items.payload),
            Operation::Seal => self.seal(Caller::Keyless(ticket), items.payload),
            Operation::Unseal => self.unseal(Caller::Keyless(ticket), items.payload),
            // Checked first: a client without the permission learns nothing about keys.
            Operation::RsaDecrypt if !self.can_decrypt_for(ticket.entry.tenant()) => {
                ticket.fail(Failure::NoDecryption);
            }
            // Clients of this protocol send no deadline.
            Operation::RsaDecrypt => self.by_key(ticket, items, |caller, name, input| {
                self.decrypt(caller, name, input, None);
            }),
            Operation::Sign(scheme) => self.by_key(ticket, items, |caller, name, input| {
                self.sign(caller, name, scheme, input, Terms::default());
            }),
        }
    }

    /// Runs `work` with the key that a message names.
    fn by_key(
        &self,
        ticket: Ticket,
        items: &MessageItems<'_>,
        work: impl FnOnce(Caller, KeyName, Box<[u8]>),
    ) {
        let Some(ski) = items.ski else { return ticket.fail(Failure::NoKey) };
        if ticket.outbox().in_flight() > OF_CONNECTION_MAX {
            return ticket.fail(Failure::Overloaded(Refusal::Connection));
        }
        work(Caller::Keyless(ticket), KeyName::Ski(ski), items.payload.into());
    }
}

fn origin(items: &MessageItems<'_>, client: &Client, tenant: &str) -> Origin {
    let request_id = items.context.and_then(request_id);
    let span = tracing::enabled!(Level::DEBUG).then(|| span(items, tenant, request_id.as_deref()));
    let trace = items.trace.and_then(|trace| TraceParent::parse(std::str::from_utf8(trace).ok()?));
    let client = client.identity().spki_sha256();
    Origin { span, trace, key: items.ski.map(KeyName::Ski), request_id, is_relayed: false, client }
}

/// Creates the tracing span of a request (`--log keyless=debug`).
fn span(items: &MessageItems<'_>, tenant: &str, request_id: Option<&str>) -> Span {
    let opcode = operation::place(items.opcode).map_or("unknown", |place| OPERATIONS[place].1);
    let request_id = request_id.unwrap_or_default();
    let trace = items.trace.map(format_trace).unwrap_or_default();
    let ski = items.ski.map(|ski| ski.to_string()).unwrap_or_default();
    tracing::debug_span!("keyless", tenant, opcode, ski, request_id, trace)
}

/// The parsed members of a visitor's context.
#[derive(serde::Deserialize)]
struct Context<'a> {
    #[serde(borrow)]
    request_id: std::borrow::Cow<'a, str>,
}

/// Returns `request_id` of the context.
fn request_id(context: &[u8]) -> Option<Box<str>> {
    let Context { request_id } = serde_json::from_slice(context).ok()?;
    Some(request_id.chars().take(REQUEST_ID_MAX).filter(|c| !c.is_control()).collect())
}

/// Formats a span context: text unchanged, other bytes in hexadecimal.
fn format_trace(trace: &[u8]) -> String {
    let part = &trace[..trace.len().min(REQUEST_ID_MAX)];
    match std::str::from_utf8(part) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => HEXLOWER.encode(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_request_ids_are_bounded_and_sanitized() {
        assert_eq!(request_id(br#"{"request_id":"abc","x":1}"#).as_deref(), Some("abc"));
        assert_eq!(request_id(br#"{"request_id":"a\nb"}"#).as_deref(), Some("ab"));
        for none in [&b"{"[..], b"[]", b"{}", br#"{"request_id":7}"#] {
            assert_eq!(request_id(none), None);
        }
        assert_eq!(format_trace(b"3b:1:0:1"), "3b:1:0:1");
        assert_eq!(format_trace(&[0, 0xff]), "00ff");
        assert_eq!(format_trace(&[b'a'; 1_000]).len(), REQUEST_ID_MAX);
    }
}
