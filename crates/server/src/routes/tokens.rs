//! Routes: tokens.
