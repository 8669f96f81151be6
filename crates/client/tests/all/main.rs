//! The client and its agent against a store that answers as a test wants it to. Against a real one: `server`'s tests.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends by a panic where it cannot go on")]

mod agent;
mod store;
mod tls;
