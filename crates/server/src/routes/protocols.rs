//! Routes: protocols.
