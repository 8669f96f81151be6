//! Names and connections against servers of their own, on loopback.

// A test that cannot go on fails where it stands.
#![allow(clippy::unwrap_used)]

mod dial;
mod dns;
mod name_server;
mod tls;
