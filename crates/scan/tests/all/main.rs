//! Integration tests with peers: the fleet, openssl and real servers.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod engine;
mod limits;
mod revocation;
mod revoking;
mod starttls_postgres;
mod tls_openssl;
mod tls_rustls;
mod truth;
mod world;
