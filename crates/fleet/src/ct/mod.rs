//! Simulated Certificate Transparency: a static-ct log with a real Merkle tree ([`CtLog`]), and two search services
//! ([`FakeSearchService`]) with the APIs, pages, quotas and errors of Cert Spotter and crt.sh.
//!
//! The simulation has the properties that clients must handle: immutable tiles with a moving checkpoint, 429 with and without
//! Retry-After, pagination, empty responses instead of errors, truncated bodies, and missing responses.

pub(crate) mod http;
mod log;
mod paper;
mod search;
mod tree;

pub use http::{CtCounts, Quota, Trouble};
pub use log::{CtLog, CtLogOptions};
pub use paper::{CtAuthority, IssuedPair};
pub use search::{FakeSearchService, SearchKind, SearchOptions};
