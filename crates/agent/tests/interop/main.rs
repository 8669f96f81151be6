//! Deployment to servers that need root (Dovecot, Postfix) or that Debian does not have (Traefik, Envoy).
//!
//! `.ci/interop` installs them and runs this. They must stand in PATH.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the modules shared with tests/all have more than is used here"
)]

mod deploy;
