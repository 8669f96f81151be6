//! Counters of revocation verdicts, of requests for CRLs and OCSP responses, and of cache lookups.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use x509::UnixTime;

use super::list::List;

/// Kind of a fetched resource: a CRL or an OCSP response.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum FetchKind {
    /// A CRL.
    Crl,
    /// An OCSP response.
    Ocsp,
}

impl FetchKind {
    /// Returns the stable name: `crl`, `ocsp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crl => "crl",
            Self::Ocsp => "ocsp",
        }
    }
}

/// Upper bounds of the age histogram in seconds: one hour, six hours, one day, two days, one week; the last bucket has no bound. A
/// CRL for subscriber certificates may be valid for ten days (Baseline Requirements section 4.9.7).
pub const LIST_AGES_S: [u64; 5] = [3_600, 6 * 3_600, 86_400, 2 * 86_400, 7 * 86_400];

/// Counters of requests and of the cache.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RevocationCounts {
    /// Number of verdicts by name: `good`, `revoked`, `unknown`, `not-applicable`.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Number of fetches of CRLs and OCSP responses by result: `read`, `not-modified`, `older` than the cached one, or the name of
    /// the error.
    pub fetches: BTreeMap<(FetchKind, &'static str), u64>,
    /// CRL lookups answered from the cache, including cached failures.
    pub crl_cache_hits: u64,
    /// OCSP lookups answered from the cache, including cached failures.
    pub ocsp_cache_hits: u64,
    /// Histogram of the CRLs' ages (time since thisUpdate) when a verdict was based on them: one bucket for each of
    /// [`LIST_AGES_S`], and one for older CRLs.
    pub list_ages: [u64; LIST_AGES_S.len() + 1],
    /// Sum of the CRLs' ages in `list_ages`, in seconds.
    pub list_ages_sum_s: u64,
    /// HTTP requests for CRLs and OCSP responses, including conditional ones; redirects are not counted again.
    pub requests: u64,
    /// Conditional requests with a 304 (Not Modified) response.
    pub not_modified: u64,
    /// Number of parsed CRLs.
    pub lists_read: u64,
    /// Total number of entries in the parsed CRLs.
    pub entries_read: u64,
    /// Memory of the parsed CRLs in bytes, before any was evicted.
    pub packed_bytes: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) not_modified: AtomicU64,
    pub(super) lists_read: AtomicU64,
    pub(super) entries_read: AtomicU64,
    pub(super) packed_bytes: AtomicU64,
    /// Number of verdicts by name; four names at most.
    pub(super) verdicts: Mutex<BTreeMap<&'static str, u64>>,
    /// Number of fetches by kind and result. The result is `read`, `not-modified`, `older`, or the code of a failure's
    /// [`Cause`](super::verdict::Cause).
    pub(super) fetches: Mutex<BTreeMap<(FetchKind, &'static str), u64>>,
    pub(super) list_ages: [AtomicU64; LIST_AGES_S.len() + 1],
    pub(super) list_ages_sum_s: AtomicU64,
}

impl Counters {
    pub(super) fn fetched(&self, what: FetchKind, outcome: &'static str) {
        *self.fetches.lock().entry((what, outcome)).or_insert(0) += 1;
    }

    pub(super) fn record_list_age(&self, list: &List, now: UnixTime) {
        let age_s = u64::try_from(now.since(list.this_update())).unwrap_or(0);
        let bucket = LIST_AGES_S.iter().position(|end| age_s <= *end).unwrap_or(LIST_AGES_S.len());
        self.list_ages[bucket].fetch_add(1, Relaxed);
        self.list_ages_sum_s.fetch_add(age_s, Relaxed);
    }
}
