//! Metrics of the background loops.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;

use crate::error::DataError;

/// Metrics of the background loops of this process, by loop name.
#[derive(Debug, Default)]
pub struct Figures {
    loops: Mutex<BTreeMap<&'static str, LoopFigures>>,
}

/// Metrics of one background loop: iterations, failures, duration, and processed items.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoopFigures {
    /// Number of iterations since startup.
    pub runs: u64,
    /// Number of failed iterations since startup.
    pub failures: u64,
    /// Start of the last iteration, in µs since 1970.
    pub last_run_at_us: i64,
    /// Duration of the last iteration, in seconds.
    pub last_seconds: f64,
    /// Number of items processed since startup.
    pub done: u64,
    /// Number of items that failed since startup.
    pub failed: u64,
    /// Number of items that were due in the last iteration.
    pub due: u64,
}

impl Figures {
    pub(crate) fn start(&self, name: &'static str, now_us: i64) -> Instant {
        self.loops.lock().entry(name).or_default().last_run_at_us = now_us;
        Instant::now()
    }

    pub(crate) fn end(&self, name: &'static str, began: Instant, outcome: &Result<u64, DataError>) {
        let mut loops = self.loops.lock();
        let figures = loops.entry(name).or_default();
        figures.runs += 1;
        figures.last_seconds = began.elapsed().as_secs_f64();
        match outcome {
            Ok(done) => figures.done += done,
            Err(_) => figures.failures += 1,
        }
    }

    pub(crate) fn add(&self, name: &'static str, done: u64, failed: u64) {
        let mut loops = self.loops.lock();
        let figures = loops.entry(name).or_default();
        figures.done += done;
        figures.failed += failed;
    }

    pub(crate) fn due(&self, name: &'static str, due: u64) {
        self.loops.lock().entry(name).or_default().due = due;
    }

    /// Returns the metrics of all loops, by name.
    #[must_use]
    pub fn loops(&self) -> BTreeMap<&'static str, LoopFigures> {
        self.loops.lock().clone()
    }
}
