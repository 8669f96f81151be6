//! Requests in flight: counts with a bound, in all and by tenant.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// One request under way to a key elsewhere, until dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A count with a bound, for requests to keys elsewhere in all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<AtomicUsize>);

impl Places {
    /// `None` when there are `max` already.
    pub(crate) fn take(&self, max: usize) -> Option<Place> {
        take(&self.0, max).map(Place)
    }
}

/// Counts one more, unless there are `max`.
fn take(count: &Arc<AtomicUsize>, max: usize) -> Option<Arc<AtomicUsize>> {
    if count.fetch_add(1, Relaxed) >= max {
        count.fetch_sub(1, Relaxed);
        return None;
    }
    Some(Arc::clone(count))
}

/// Requests under way by tenant: an entry for each that has some.
#[derive(Debug, Default)]
pub(crate) struct Counts(HashMap<Box<str>, usize>);

impl Counts {
    /// How many it has.
    pub(crate) fn of(&self, tenant: &str) -> usize {
        self.0.get(tenant).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, tenant: &str) {
        match self.0.get_mut(tenant) {
            Some(count) => *count += 1,
            None => drop(self.0.insert(tenant.into(), 1)),
        }
    }

    pub(crate) fn remove(&mut self, tenant: &str) {
        if let Some(count) = self.0.get_mut(tenant) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(tenant);
            }
        }
    }
}
