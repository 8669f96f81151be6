//! Requests in flight: limited counters, in total and by tenant.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Permission for one request in flight. Dropping the permit decrements the counter.
#[derive(Debug)]
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A counter of requests in flight with a limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConcurrencyLimit(Arc<AtomicUsize>);

impl ConcurrencyLimit {
    /// Takes a permit; `None` if `max` permits are taken.
    pub(crate) fn acquire(&self, max: usize) -> Option<Permit> {
        take(&self.0, max).map(Permit)
    }
}

/// Increments the counter, unless it is at `max`.
fn take(count: &Arc<AtomicUsize>, max: usize) -> Option<Arc<AtomicUsize>> {
    if count.fetch_add(1, Relaxed) >= max {
        count.fetch_sub(1, Relaxed);
        return None;
    }
    Some(Arc::clone(count))
}

/// Number of requests in progress by tenant. Tenants without requests have no entry.
#[derive(Debug, Default)]
pub(crate) struct TenantCounts(HashMap<Box<str>, usize>);

impl TenantCounts {
    /// Returns the number of requests in progress of a tenant.
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
