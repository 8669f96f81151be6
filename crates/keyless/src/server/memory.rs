//! Bounds of the octets that wait to be signed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::tenant::{Counted, Tenant};

/// Octets of long messages to be signed that may wait, over all requests: a thousand of the longest. Of one tenant half.
const OCTETS_MAX: usize = 64 << 20;

/// No digest has more octets. What is no longer is bounded by the places there are.
pub(super) const DIGEST_MAX: usize = 64;

/// Octets that wait to be signed.
#[derive(Debug, Default)]
pub(super) struct Octets(Arc<AtomicUsize>);

/// Some of them, until dropped.
pub(super) struct Held(
    Arc<AtomicUsize>,
    usize,
    #[expect(dead_code, reason = "given back when dropped")] Counted,
);

impl Octets {
    pub(super) fn take(&self, count: usize, tenant: &Tenant) -> Option<Held> {
        let of_tenant = tenant.octets(count, OCTETS_MAX / 2)?;
        // Given back when dropped, also right now.
        let held = Held(Arc::clone(&self.0), count, of_tenant);
        let before = self.0.fetch_add(count, Relaxed);
        (before + count <= OCTETS_MAX).then_some(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Relaxed);
    }
}
