//! The proxy and its certificate store.

#![allow(clippy::unwrap_used, reason = "tests")]

mod access;
mod certificate_store;
mod generated;
mod hostile;
mod minting;
mod own_tls;
mod proxy;
mod requests;
mod second_level;
mod ways;
mod world;
