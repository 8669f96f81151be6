//! Memory for long messages that wait to be signed, limited in total and by tenant.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::tenant::{Counted, Tenant};

/// Maximum bytes of long messages that wait to be signed: a thousand messages of maximum length. One tenant may use half.
const BYTES_MAX: usize = 64 << 20;

/// Bytes of the longest digest. Inputs up to this length are limited by the number of requests only.
pub(super) const DIGEST_MAX: usize = 64;

/// Bytes that wait to be signed, over all requests.
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
        let of_tenant = tenant.bytes(count, BYTES_MAX / 2)?;
        // If the total is exceeded, dropping `reserved` returns the bytes.
        let reserved = ReservedBytes(Arc::clone(&self.0), count, of_tenant);
        let before = self.0.fetch_add(count, Relaxed);
        (before + count <= BYTES_MAX).then_some(reserved)
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Relaxed);
    }
}
