//! Names and connections against servers of their own, on loopback.

// A test that cannot go on fails where it stands.
#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod dial;
mod dns;
mod name_server;
mod tls;
