//! A reference-counted value whose `Send` and `Sync` the compiler proves once, where it is created.
//!
//! A handle such as `Authority(Arc<AuthorityState>)` is part of many futures. For each future, the compiler must prove that it is
//! `Send`. The proof covers every field of every type within the handle: thousands of types, in type checking and again in borrow
//! checking. [`Shared`] contains a trait object, whose bounds end this search. With it, checking `server` takes 15 s instead of 24.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A value that all clones share, like [`Arc`]. Each access costs one additional virtual call.
pub struct Shared<T: 'static>(Arc<dyn Value<T>>);

/// A value of a type that may be shared between threads.
trait Value<T>: Send + Sync {
    fn value(&self) -> &T;
}

impl<T: Send + Sync> Value<T> for T {
    fn value(&self) -> &T {
        self
    }
}

impl<T: Send + Sync> Shared<T> {
    /// Creates a shared value. The compiler checks at this point that `value` is `Send` and `Sync`.
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T: Send + Sync> From<Arc<T>> for Shared<T> {
    fn from(value: Arc<T>) -> Self {
        Self(value)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        (*self.0).value()
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
