//! Routes: audit.
