//! Runs that this process works on: their leases are kept, and no others'.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// The rows of the runs that this process works on. Cheap to clone; the clones share them.
#[derive(Clone, Default)]
pub(crate) struct RunsAtWork(Arc<Mutex<HashSet<i64>>>);

impl RunsAtWork {
    /// Keeps the leases of these runs until what it returns is dropped.
    pub(crate) fn keep(&self, jobs: Vec<i64>) -> AtWork {
        self.0.lock().extend(&jobs);
        AtWork { all: self.clone(), jobs }
    }

    /// All of them.
    pub(crate) fn jobs(&self) -> Vec<i64> {
        self.0.lock().iter().copied().collect()
    }
}

/// Keeps the leases of claimed runs until it is dropped: a run that nobody works on any more is left to its lease, whatever
/// the database says to that at the moment.
pub(crate) struct AtWork {
    all: RunsAtWork,
    jobs: Vec<i64>,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        self.jobs.iter().for_each(|job| {
            all.remove(job);
        });
    }
}

impl std::fmt::Debug for AtWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AtWork").field(&self.jobs).finish()
    }
}
