//! The crate's integration tests, one binary.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod age;
mod batches;
mod masters;
mod openssl;
mod pkcs11;
mod scheme;
mod sealed;
mod sealing;
mod software;
mod tpm;
