//! The integration tests of this crate, in one binary.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod build;
mod chains;
mod cms;
mod crl;
mod csr;
mod encodings;
mod fields;
mod forge;
mod ocsp;
mod rules;
mod signing;
