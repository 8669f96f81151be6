//! Certificate Transparency, simulated honestly: a static-ct log with a real Merkle tree ([`CtLog`]) and two search
//! services ([`SearchFake`]) in the shape of Cert Spotter and of crt.sh, with their pages, quotas and errors.
//!
//! What they share with a real one is what breaks clients: immutable tiles and a checkpoint that moves, 429 with and
//! without Retry-After, pages, empty answers instead of errors, bodies cut in half, silence.

pub(crate) mod http;
mod log;
mod paper;
mod search;
mod tree;

pub use http::{CtCounts, Quota, Trouble};
pub use log::{CtLog, CtLogOptions};
pub use paper::{CtAuthority, IssuedPair};
pub use search::{SearchFake, SearchKind, SearchOptions};
