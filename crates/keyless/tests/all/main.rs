//! The crate's integration tests, one binary.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod batches;
mod certificates;
mod client;
mod conformance;
mod decryption;
mod door;
mod fair;
mod generated;
mod hostile;
mod listeners;
mod load;
mod native;
mod native_hostile;
mod node;
mod operations;
mod peer;
mod places;
mod records;
mod relay;
mod routing;
#[cfg(target_os = "linux")]
mod sites;
mod tenants;
mod wire;
