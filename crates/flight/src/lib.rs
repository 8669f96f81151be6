//! Caching with single flight: work is done once for all concurrent callers, and its result is cached for its lifetime.
//!
//! [`Cache::fetch`] returns the cached value, or runs the caller's work exactly once for all callers with the same key. No task is
//! spawned: the work is polled by one of its waiters, continues in another when that one is dropped, and is dropped with the last.
//!
//! [`BoundedMap`] is the underlying bounded concurrent map, for values that need no single flight.

mod bounded_map;
mod cache;
mod erased;
mod flying;

pub use bounded_map::{BoundedMap, BoundedMapBuilder};
pub use cache::{Cache, Cached, Counts, Failed, Fresh};
pub use erased::Eviction;
