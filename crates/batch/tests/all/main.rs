//! Tests of the batch: every lane beside what plain numbers make of the same.

#![allow(clippy::unwrap_used)]

mod ed25519;
mod lanes;
mod p256;
#[cfg(target_os = "linux")]
mod stack;
