//! Typed events, to the outbox and out of it.

use db::{NewEvent, OutboxRow};
use events::Event;

/// An event for [`emit`](crate::emit): what happened to `subject` at `at_us`, µs.
#[must_use]
pub fn new_event(at_us: i64, subject: String, event: &Event) -> NewEvent {
    NewEvent { at_us, kind: event.kind(), subject, body: event.body() }
}

/// Reads an event. `None` for a kind that only a newer version knows, and for an unreadable body, which is logged.
#[must_use]
pub fn read_event(row: &OutboxRow) -> Option<Event> {
    Event::read(&row.kind, &row.body).unwrap_or_else(|error| {
        tracing::error!(%error, subject = row.subject, "an event is passed over");
        None
    })
}
