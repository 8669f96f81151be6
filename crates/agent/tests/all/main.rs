//! The crate's integration tests, one binary.

#![allow(clippy::unwrap_used)]

mod agents;
mod deploy;
