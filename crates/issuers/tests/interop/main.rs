//! Tests of issuers with real servers that are not in Debian: Pebble, step-ca and OpenBao.
//!
//! `.ci/interop` installs them and runs these tests. The programs must be in PATH.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the modules shared with tests/all have more than is used here"
)]

#[path = "../all/authority_of_tests.rs"]
mod authority_of_tests;
#[path = "../all/named.rs"]
mod named;
#[path = "../all/world.rs"]
mod world;

mod acme;
mod openbao;
mod pebble;
mod step_ca;
mod transit;
