//! Certificate sources against simulated clouds, which enforce pages, quotas and errors as the real clouds document them. `cargo
//! test -p clouds --features aws,azure,gcp,kubernetes --test clouds`.

// Clippy's test exemption covers only functions marked as tests.
#![allow(clippy::unwrap_used, reason = "what a test's world is made of must be there")]

mod aws;
mod azure;
mod gcp;
mod inventory;
mod kubernetes;
mod together;
mod world;
