//! Work under way, found by key.

use std::any::Any;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::{Shared, WeakShared};
use parking_lot::{Mutex, MutexGuard};

/// Parts the table is split into, so that callers on different cores seldom meet at one lock.
const PARTS: usize = 16;

/// How the work ended.
pub(crate) enum Ending<V, E> {
    Done(Result<V, E>),
    /// The work panicked. Its maker takes the payload and panics on; others start again.
    Panicked(Arc<Mutex<Option<Box<dyn Any + Send>>>>),
}

impl<V, E> Ending<V, E> {
    /// For the caller whose own work it was.
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

/// Never keeps work alive: only those who wait for it do.
pub(crate) struct Flying<K, V, E> {
    parts: [Mutex<Part<K, V, E>>; PARTS],
    hasher: RandomState,
    next_id: AtomicU64,
}

impl<K: Hash + Eq, V, E> Flying<K, V, E> {
    pub(crate) fn new() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::new(HashMap::new())),
            hasher: RandomState::new(),
            next_id: AtomicU64::new(0),
        }
    }

    /// The part of the table where `key` is, locked.
    pub(crate) fn part(&self, key: &K) -> MutexGuard<'_, Part<K, V, E>> {
        // The remainder is below PARTS, so the cast loses nothing.
        self.parts[(self.hasher.hash_one(key) % PARTS as u64) as usize].lock()
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().len()).sum()
    }
}
