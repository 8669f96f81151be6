//! The crate's integration tests, one binary.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod apart;
mod crls;
mod forged;
mod socket;
mod taken_over;
mod world;
