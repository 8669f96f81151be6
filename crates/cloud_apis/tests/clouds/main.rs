//! Sources of certificates against simulated clouds that enforce pages, quotas and errors as the real ones document
//! them. `cargo test -p clouds --features aws,azure,gcp,kubernetes --test clouds`.

// clippy's allowance for tests covers functions marked as tests only.
#![allow(clippy::unwrap_used, reason = "what a test's world is made of must be there")]

mod aws;
mod azure;
mod gcp;
mod inventory;
mod kubernetes;
mod together;
mod world;
