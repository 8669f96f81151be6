//! Do it once for all who ask, and remember it for as long as it is true.
//!
//! [`Cache::fetch`] returns the cached value or runs the caller's work exactly once for all callers of
//! the same key. Nothing is spawned: the work runs inside whoever waits for it, moves on to another
//! waiter when that one goes away, and is dropped with the last.

mod cache;
mod flying;

pub use cache::{Cache, Cached, Counts, Failed, Fresh};
