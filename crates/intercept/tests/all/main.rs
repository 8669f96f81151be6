//! The proxy and its certificate store.

#![allow(clippy::unwrap_used, reason = "tests")]

mod certificate_store;
mod hostile;
mod proxy;
mod requests;
mod world;
