//! Routes: events.
