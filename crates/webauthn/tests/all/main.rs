//! Registrations and assertions: the test vectors of WebAuthn Level 3 section 16, responses of a browser, and changed copies of them.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod approvals;
mod browser;
mod vectors;
