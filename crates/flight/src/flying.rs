//! Table of work in progress, by key.

use std::any::Any;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::{Shared, WeakShared};
use parking_lot::{Mutex, MutexGuard};

/// Number of shards of the table, to reduce lock contention between cores.
const PARTS: usize = 16;

/// Result of the work.
pub(crate) enum Ending<V, E> {
    Done(Result<V, E>),
    /// The work panicked. The caller that started it resumes the panic with the payload; others start their own work.
    Panicked(Arc<Mutex<Option<Box<dyn Any + Send>>>>),
}

impl<V, E> Ending<V, E> {
    /// Returns the result for the caller that started the work.
    pub(crate) fn into_result(self) -> Result<V, E> {
        match self {
            Self::Done(result) => result,
            Self::Panicked(payload) => {
                let payload = payload.lock().take();
                std::panic::resume_unwind(payload.unwrap_or_else(|| Box::new("work panicked")))
            }
        }
    }
}

impl<V: Clone, E: Clone> Clone for Ending<V, E> {
    fn clone(&self) -> Self {
        match self {
            Self::Done(result) => Self::Done(result.clone()),
            Self::Panicked(payload) => Self::Panicked(payload.clone()),
        }
    }
}

type Work<V, E> = Pin<Box<dyn Future<Output = Ending<V, E>> + Send>>;
pub(crate) type Joined<V, E> = Shared<Work<V, E>>;

pub(crate) struct Entry<V, E> {
    pub(crate) id: u64,
    pub(crate) work: WeakShared<Work<V, E>>,
}

pub(crate) type Part<K, V, E> = HashMap<K, Entry<V, E>>;

/// Table of work in progress. Does not keep the work alive; only its waiters do.
pub(crate) struct WorkInFlight<K, V, E> {
    parts: [Mutex<Part<K, V, E>>; PARTS],
    hasher: RandomState,
    next_id: AtomicU64,
}

impl<K: Hash + Eq, V, E> WorkInFlight<K, V, E> {
    pub(crate) fn new() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::new(HashMap::new())),
            hasher: RandomState::new(),
            next_id: AtomicU64::new(0),
        }
    }

    /// Locks and returns the shard of `key`.
    pub(crate) fn part(&self, key: &K) -> MutexGuard<'_, Part<K, V, E>> {
        // The remainder is less than PARTS, so the cast does not truncate.
        self.parts[(self.hasher.hash_one(key) % PARTS as u64) as usize].lock()
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }
}
