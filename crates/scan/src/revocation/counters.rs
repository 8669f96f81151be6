//! Counts of verdicts and requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use x509::UnixTime;

use super::list::List;

/// Kind of a fetched resource.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Fetched {
    /// A CRL.
    Crl,
    /// An OCSP response.
    Ocsp,
}

impl Fetched {
    /// A stable word: `crl`, `ocsp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crl => "crl",
            Self::Ocsp => "ocsp",
        }
    }
}

/// Upper ends of the ages that are told apart, seconds: an hour, six, a day, two, a week (the longest that a CRL may hold for
/// subscribers' certificates is ten days, Baseline Requirements section 4.9.7); older ones are behind the last.
pub const LIST_AGES_S: [u64; 5] = [3_600, 6 * 3_600, 86_400, 2 * 86_400, 7 * 86_400];

/// Counters of requests and of the cache.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RevocationCounts {
    /// Verdicts given, by their word.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// CRLs and OCSP responses fetched, by what it came to: `read`, `not-modified`, `older` than the one at hand, else the
    /// word of the cause.
    pub fetches: BTreeMap<(Fetched, &'static str), u64>,
    /// CRLs taken from memory, remembered failures included.
    pub lists_at_hand: u64,
    /// OCSP answers taken from memory, remembered failures included.
    pub answers_at_hand: u64,
    /// How old CRLs were when they gave a verdict, since their thisUpdate: verdicts by [`LIST_AGES_S`], then those older.
    pub list_ages: [u64; LIST_AGES_S.len() + 1],
    /// Seconds of all these ages together.
    pub list_ages_sum_s: u64,
    /// HTTP requests sent, CRLs and OCSP, conditional ones included; redirects are not counted again.
    pub requests: u64,
    /// Conditional requests answered by "not modified".
    pub not_modified: u64,
    /// CRLs read whole.
    pub lists_read: u64,
    /// Entries in them.
    pub entries_read: u64,
    /// Bytes of memory of the lists read, before any was let go.
    pub octets_packed: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) not_modified: AtomicU64,
    pub(super) lists_read: AtomicU64,
    pub(super) entries_read: AtomicU64,
    pub(super) octets_packed: AtomicU64,
    /// Four words at most.
    pub(super) verdicts: Mutex<BTreeMap<&'static str, u64>>,
    /// The words of causes and three more, twice.
    pub(super) fetches: Mutex<BTreeMap<(Fetched, &'static str), u64>>,
    pub(super) list_ages: [AtomicU64; LIST_AGES_S.len() + 1],
    pub(super) list_ages_sum_s: AtomicU64,
}

impl Counters {
    pub(super) fn fetched(&self, what: Fetched, outcome: &'static str) {
        *self.fetches.lock().entry((what, outcome)).or_insert(0) += 1;
    }

    pub(super) fn told_by(&self, list: &List, now: UnixTime) {
        let age_s = u64::try_from(now.since(list.this_update())).unwrap_or(0);
        let of = LIST_AGES_S.iter().position(|end| age_s <= *end).unwrap_or(LIST_AGES_S.len());
        self.list_ages[of].fetch_add(1, Relaxed);
        self.list_ages_sum_s.fetch_add(age_s, Relaxed);
    }
}
