//! The integration tests of this crate, in one binary.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod life;
mod tables;
