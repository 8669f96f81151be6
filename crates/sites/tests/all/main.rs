//! The crate's integration tests, one binary.

#![allow(clippy::unwrap_used)]

mod issuer;
mod key_policies;
mod sites;
