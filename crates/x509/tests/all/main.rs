//! The crate's integration tests, in one binary.

// Helpers of tests fail by panicking, as tests do.
#![allow(clippy::unwrap_used)]

mod chains;
mod encodings;
mod fields;
mod forge;
mod rules;
