//! Counts running tasks, to verify that every task has an owner and is stopped.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// A kind of task, and the number of running tasks of this kind.
struct Kind {
    name: &'static str,
    live: &'static AtomicI64,
}

// One entry per kind. Kinds are literals in the code, so there are at most a few dozen.
static KINDS: Mutex<Vec<Kind>> = Mutex::new(Vec::new());

/// Guard that counts one task of a kind until dropped. Keep the guard inside the task.
#[derive(Debug)]
pub struct TaskGuard(&'static AtomicI64);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Counts a task of `kind`, from now until the guard is dropped.
#[must_use]
pub fn guard(kind: &'static str) -> TaskGuard {
    let live = counter(kind);
    live.fetch_add(1, Relaxed);
    TaskGuard(live)
}

/// Returns the number of running tasks of each kind.
#[must_use]
pub fn live() -> Vec<(&'static str, i64)> {
    let kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    kinds.iter().map(|kind| (kind.name, kind.live.load(Relaxed))).collect()
}

fn counter(kind: &'static str) -> &'static AtomicI64 {
    let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kinds.iter().find(|known| known.name == kind) {
        return known.live;
    }
    // One allocation per kind, which is never freed.
    let live: &'static AtomicI64 = Box::leak(Box::new(AtomicI64::new(0)));
    kinds.push(Kind { name: kind, live });
    live
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_counts_live_tasks() {
        let count = || live().into_iter().find(|(kind, _)| *kind == "test-kind").map(|(_, n)| n);
        let (first, second) = (guard("test-kind"), guard("test-kind"));
        assert_eq!(count(), Some(2));
        drop(first);
        assert_eq!(count(), Some(1));
        drop(second);
        assert_eq!(count(), Some(0));
    }
}
