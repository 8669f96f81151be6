//! Routes: people.
