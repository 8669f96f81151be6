//! Do it once for all who ask, and remember it for as long as it is true.
//!
//! [`Cache::fetch`] returns the cached value or runs the caller's work exactly once for all callers of
//! the same key. Nothing is spawned: the work runs inside anyone who waits for it, moves on to another
//! waiter when that one goes away, and is dropped with the last.
//!
//! [`BoundedMap`] is the bounded concurrent map below it, for values that need no single flight.

mod bounded_map;
mod cache;
mod erased;
mod flying;

pub use bounded_map::{BoundedMap, BoundedMapBuilder};
pub use cache::{Cache, Cached, Counts, Failed, Fresh};
pub use erased::Eviction;
