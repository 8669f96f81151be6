//! The client and its agent against a fake store. Tests with a real store are in `server`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends by a panic where it cannot go on")]

mod access;
mod agent;
mod store;
mod tls;
