//! The crate's integration tests, one binary.

#![allow(clippy::unwrap_used)]

mod agents;
mod alerts;
mod deploy;
mod issuers;
mod key_policies;
mod life;
mod places;
