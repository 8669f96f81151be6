//! The crate's integration tests, one binary.

#![allow(clippy::unwrap_used)]

mod certificates;
mod client;
mod conformance;
mod hostile;
mod listeners;
mod load;
mod peer;
mod wire;
