//! Issuers against real servers that Debian does not have: Pebble, step-ca and OpenBao.
//!
//! `.ci/interop` installs them and runs this. They must stand in PATH.

#![allow(clippy::unwrap_used)]
// What is shared with the ordinary tests is more than is used here.
#![allow(dead_code, unreachable_pub)]

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
