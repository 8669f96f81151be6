//! Counters of the authority for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use flight::Counts;

/// Counters of the certification authority since startup, and current numbers of requests in progress.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Number of issued certificates.
    pub issued: u64,
    /// Number of requests with a repeated idempotency key, for which the certificate of the first request was returned.
    pub repeated: u64,
    /// Number of certificate requests that were rejected, so that only a different request can succeed.
    pub refused: u64,
    /// Number of requests that failed for another reason, such as the database or a key.
    pub failed: u64,
    /// Number of issuance requests in progress, including their policy check, signature and database commit.
    pub issuing: u64,
    /// Number of signed certificates that wait for their database commit. Included in `issuing`.
    pub storing: u64,
    /// Number of certificates whose revocation status was changed by this process.
    pub revoked: u64,
    /// Number of CRLs created by this process; delta CRLs are not counted.
    pub crls: u64,
    /// Number of OCSP responses from the cache.
    pub ocsp_cached: u64,
    /// Number of OCSP responses that were signed.
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

    /// Counts an operation as in progress until the guard is dropped.
    pub(crate) fn in_progress(counter: &AtomicU64) -> InProgress<'_> {
        Self::add(counter, 1);
        InProgress(counter)
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
            ocsp_cached: answers.hits,
            ocsp_signed: read(&self.ocsp_signed),
        }
    }
}

pub(crate) struct InProgress<'a>(&'a AtomicU64);

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
