//! The proxy and its certificate store.

#![allow(clippy::unwrap_used, reason = "tests")]

mod certificate_store;
mod generated;
mod hostile;
mod minting;
mod proxy;
mod world;
