//! The crate's integration tests, in one binary.

mod chains;
mod encodings;
mod fields;
mod forge;
mod rules;
