//! Conversion of typed events to and from outbox rows.

use db::{NewEvent, OutboxRow};
use events::Event;

/// Creates an event for [`emit`](crate::emit) about `subject` at `at_us`, in µs since 1970-01-01 UTC.
#[must_use]
pub fn new_event(at_us: i64, subject: String, event: &Event) -> NewEvent {
    NewEvent { at_us, kind: event.kind(), subject, body: event.body() }
}

/// Parses an event from an outbox row. Returns `None` for an event kind that only a newer version knows, and for a malformed body,
/// which is logged.
#[must_use]
pub fn read_event(row: &OutboxRow) -> Option<Event> {
    Event::read(&row.kind, &row.body).unwrap_or_else(|error| {
        tracing::error!(%error, subject = row.subject, "an unreadable event is skipped");
        None
    })
}
