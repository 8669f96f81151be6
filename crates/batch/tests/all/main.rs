//! Tests of the batch: every lane beside what plain numbers make of the same.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod ed25519;
mod lanes;
mod p256;
#[cfg(target_os = "linux")]
mod stack;
