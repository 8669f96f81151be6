//! The memory for long messages that wait to be signed, bounded in all and by tenant.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::tenant::{Counted, Tenant};

/// Bytes of long messages that may wait to be signed, over all requests: a thousand of the longest. Of one tenant half.
const OCTETS_MAX: usize = 64 << 20;

/// Bytes of the longest digest. Inputs up to this length are bounded by the number of requests.
pub(super) const DIGEST_MAX: usize = 64;

/// The bytes that wait to be signed, over all requests.
#[derive(Debug, Default)]
pub(super) struct ByteBudget(Arc<AtomicUsize>);

/// Bytes of one message, reserved until dropped.
pub(super) struct ReservedBytes(
    Arc<AtomicUsize>,
    usize,
    #[expect(dead_code, reason = "given back when dropped")] Counted,
);

impl ByteBudget {
    pub(super) fn reserve(&self, count: usize, tenant: &Tenant) -> Option<ReservedBytes> {
        let of_tenant = tenant.octets(count, OCTETS_MAX / 2)?;
        // Given back when dropped, also right now.
        let held = ReservedBytes(Arc::clone(&self.0), count, of_tenant);
        let before = self.0.fetch_add(count, Relaxed);
        (before + count <= OCTETS_MAX).then_some(held)
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Relaxed);
    }
}
