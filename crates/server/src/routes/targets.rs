//! Routes: targets.
