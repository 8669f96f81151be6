//! Issuers against real servers that Debian does not have: Pebble, step-ca and OpenBao. Deployment to servers that need
//! root (Dovecot, Postfix) or that Debian does not have (Traefik, Envoy).
//!
//! `.ci/interop` installs them and runs this. They must stand in PATH.

#![allow(clippy::unwrap_used)]
// What is shared with the ordinary tests is more than is used here.
#![allow(dead_code, unreachable_pub)]

#[path = "../all/issuers/authority_of_tests.rs"]
mod authority_of_tests;
#[path = "../all/issuers/named.rs"]
mod named;
#[path = "../all/issuers/world.rs"]
mod world;

mod acme;
mod deploy;
mod openbao;
mod pebble;
mod step_ca;
mod transit;
