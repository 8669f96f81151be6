//! Shared helpers of the tests of several crates: databases, a certification authority, waiting for a condition.
//!
//! Use this crate only as a dev-dependency. Its features prevent tests of low-level crates from linking high-level crates.

#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

#[cfg(feature = "authority")]
mod authority;
#[cfg(feature = "database")]
mod database;
mod generated;
#[cfg(feature = "authority")]
mod openssl;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "database")]
mod statements;
#[cfg(feature = "database")]
pub mod tables;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tpm")]
mod tpm;
mod wait;
mod write;

#[cfg(feature = "authority")]
pub use authority::Issuer;
#[cfg(feature = "database")]
pub use database::Database;
pub use generated::check_generated;
#[cfg(feature = "authority")]
pub use openssl::openssl_verifies;
#[cfg(feature = "redis")]
pub use redis::Redis;
#[cfg(feature = "database")]
pub use statements::check_statements;
#[cfg(feature = "tls")]
pub use tls::accepts_any_certificate;
#[cfg(feature = "tpm")]
pub use tpm::SoftTpm;
pub use wait::{TIMEOUT, pause, until, until_async, until_blocking, until_some};
pub use write::write_and_flush;
