//! Routes: agents.
