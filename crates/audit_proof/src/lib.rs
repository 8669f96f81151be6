//! Proofs about the audit log, as pure functions: no database, no network, no clock.
//!
//! - [`head`]: signed heads, which name the end of every hash chain.
//! - [`segment`]: sealed segments, which hold old events of one chain.
//! - [`inclusion`]: that a line is in a segment.
//! - [`export`]: a whole export, held against heads that were kept elsewhere.

pub mod event;
pub mod export;
pub mod head;
pub mod inclusion;
pub mod kept;
pub mod point;
pub mod segment;
pub mod signature;
