//! Proofs about the audit log, as pure functions: no database, no network, no clock.
//!
//! - [`head`]: signed heads, which name the last point of every hash chain.
//! - [`segment`]: sealed segments with old events of one chain.
//! - [`inclusion`]: proofs that a line is in a segment.
//! - [`export`]: a whole export, compared with heads kept elsewhere.

pub mod event;
pub mod export;
pub mod head;
pub mod inclusion;
pub mod point;
pub mod segment;
pub mod signature;
pub mod stored_heads;
