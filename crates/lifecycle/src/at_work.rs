//! Runs that this process is working on. This process renews only the leases of these runs.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// Row ids of the runs that this process is working on. Cheap to clone; clones share the set.
#[derive(Clone, Default)]
pub(crate) struct ActiveRuns(Arc<Mutex<HashSet<i64>>>);

impl ActiveRuns {
    /// Adds runs to the set. This process renews their leases until the returned guard is dropped.
    pub(crate) fn keep(&self, jobs: Vec<i64>) -> ActiveRunsGuard {
        self.0.lock().extend(&jobs);
        ActiveRunsGuard { all: self.clone(), jobs }
    }

    /// Returns the ids of all runs in the set.
    pub(crate) fn jobs(&self) -> Vec<i64> {
        self.0.lock().iter().copied().collect()
    }
}

/// Guard that keeps the leases of claimed runs. After the guard is dropped, the lease of an abandoned run expires without a call
/// to the database.
pub(crate) struct ActiveRunsGuard {
    all: ActiveRuns,
    jobs: Vec<i64>,
}

impl Drop for ActiveRunsGuard {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        self.jobs.iter().for_each(|job| {
            all.remove(job);
        });
    }
}

impl std::fmt::Debug for ActiveRunsGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ActiveRunsGuard").field(&self.jobs).finish()
    }
}
