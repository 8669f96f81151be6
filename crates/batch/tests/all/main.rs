//! Tests of the batch: every lane is compared with big integers.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

// Compiles the same source with a model of the instructions, on every machine.
#[cfg(batch_model)]
extern crate batch_model as batch;

mod differential;
mod ed25519;
mod lanes;
mod p256;
// The model uses more stack than is wiped.
#[cfg(all(target_os = "linux", not(batch_model)))]
mod stack;
