//! Deployment to servers that need root (Dovecot, Postfix) or that Debian does not have (Traefik, Envoy).
//!
//! `.ci/interop` installs them and runs this. They must stand in PATH.

#![allow(clippy::unwrap_used)]
// What is shared with the ordinary tests is more than is used here.
#![allow(dead_code, unreachable_pub)]

mod deploy;
