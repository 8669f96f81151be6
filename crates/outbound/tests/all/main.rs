//! Tests of name resolution and connections with local servers on loopback.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod dial;
mod dns;
mod name_server;
mod tls;
