//! What the authority has done since it was opened, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use flight::Counts;

/// Counts since the start, and what waits now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Certificates issued.
    pub issued: u64,
    /// Requests answered with a certificate issued before, by their idempotency key.
    pub repeated: u64,
    /// Requests refused.
    pub refused: u64,
    /// Requests that failed for another reason: the database, a key.
    pub failed: u64,
    /// Requests between policy and commit.
    pub issuing: u64,
    /// Those of them that are signed and wait for their commit.
    pub storing: u64,
    /// Certificates whose revocation was changed here.
    pub revoked: u64,
    /// CRLs made here, deltas aside.
    pub crls: u64,
    /// OCSP answers from memory.
    pub ocsp_kept: u64,
    /// OCSP answers signed.
    pub ocsp_signed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) issued: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) issuing: AtomicU64,
    pub(crate) storing: AtomicU64,
    pub(crate) revoked: AtomicU64,
    pub(crate) crls: AtomicU64,
    pub(crate) ocsp_signed: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    /// Counts one as under way until the guard is dropped.
    pub(crate) fn under_way(counter: &AtomicU64) -> UnderWay<'_> {
        Self::add(counter, 1);
        UnderWay(counter)
    }

    pub(crate) fn figures(&self, answers: Counts) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            issued: read(&self.issued),
            repeated: read(&self.repeated),
            refused: read(&self.refused),
            failed: read(&self.failed),
            issuing: read(&self.issuing),
            storing: read(&self.storing),
            revoked: read(&self.revoked),
            crls: read(&self.crls),
            ocsp_kept: answers.hits,
            ocsp_signed: read(&self.ocsp_signed),
        }
    }
}

pub(crate) struct UnderWay<'a>(&'a AtomicU64);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
