//! Live counters of a scan.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use events::ProbeOutcome;

/// Counters that the scan updates and that can be read while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    queued: AtomicU64,
    finished: AtomicU64,
    answered: AtomicU64,
    skipped: AtomicU64,
    repeated: AtomicU64,
    in_flight: AtomicUsize,
    in_flight_peak: AtomicUsize,
    second_pass: AtomicUsize,
    // Locked once per observation, never across an await.
    failures: Mutex<Vec<(ProbeOutcome, u64)>>,
}

/// Values of the counters of [`Progress`] at one point in time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Number of endpoints queued so far, including finished ones.
    pub queued: u64,
    /// Number of observations so far, with and without a certificate.
    pub finished: u64,
    /// Number of observations with a certificate.
    pub answered: u64,
    /// Targets skipped because this scan had already observed them (`--resume`).
    pub skipped: u64,
    /// Number of duplicate targets, which are not probed again.
    pub repeated: u64,
    /// Probes in progress.
    pub in_flight: usize,
    /// Maximum number of concurrent probes so far.
    pub in_flight_peak: usize,
    /// Endpoints that wait for their second probe.
    pub second_pass: usize,
    /// Number of probes without a certificate by outcome, most frequent first.
    pub failures: Vec<(ProbeOutcome, u64)>,
}

impl Progress {
    pub(crate) fn queued(&self) {
        self.queued.fetch_add(1, Relaxed);
    }

    pub(crate) fn skipped(&self) {
        self.skipped.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_skipped_queued(&self) {
        self.queued.fetch_sub(1, Relaxed);
        self.skipped();
    }

    pub(crate) fn repeated(&self) {
        self.repeated.fetch_add(1, Relaxed);
    }

    pub(crate) fn set_in_flight(&self, count: usize) {
        self.in_flight.store(count, Relaxed);
        self.in_flight_peak.fetch_max(count, Relaxed);
    }

    pub(crate) fn set_waiting_for_second_pass(&self, count: usize) {
        self.second_pass.store(count, Relaxed);
    }

    pub(crate) fn finished(&self, outcome: ProbeOutcome) {
        self.finished.fetch_add(1, Relaxed);
        if outcome == ProbeOutcome::Answered {
            self.answered.fetch_add(1, Relaxed);
            return;
        }
        let mut failures = self.failures.lock();
        match failures.iter_mut().find(|(kind, _)| *kind == outcome) {
            Some((_, count)) => *count += 1,
            None => failures.push((outcome, 1)),
        }
    }

    /// Returns a snapshot of all counters.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut failures = self.failures.lock().clone();
        failures.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Snapshot {
            queued: self.queued.load(Relaxed),
            finished: self.finished.load(Relaxed),
            answered: self.answered.load(Relaxed),
            skipped: self.skipped.load(Relaxed),
            repeated: self.repeated.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            in_flight_peak: self.in_flight_peak.load(Relaxed),
            second_pass: self.second_pass.load(Relaxed),
            failures,
        }
    }
}
