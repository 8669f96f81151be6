//! Tests of deployment to servers that need root (Dovecot, Postfix) or that are not in Debian (Traefik, Envoy).
//!
//! `.ci/interop` installs them and runs these tests. The programs must be in PATH.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the modules shared with tests/all have more than is used here"
)]

mod deploy;
