//! What is under way of each tenant, where each has a limit.

use std::collections::HashMap;

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
