//! What the loops have done, for metrics.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;

use crate::error::DataError;

/// What the loops of this process have done. Names are literals: a handful.
#[derive(Debug, Default)]
pub struct Figures {
    loops: Mutex<BTreeMap<&'static str, LoopFigures>>,
}

/// What one loop has done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoopFigures {
    /// Number of runs.
    pub runs: u64,
    /// Number of failed runs.
    pub failures: u64,
    /// When it last began, µs.
    pub last_run_at_us: i64,
    /// How long that took, seconds.
    pub last_seconds: f64,
    /// Things it did, since the start.
    pub done: u64,
    /// Things that failed, since the start.
    pub failed: u64,
    /// Things found due at the last look.
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

    /// Every loop by name.
    #[must_use]
    pub fn loops(&self) -> BTreeMap<&'static str, LoopFigures> {
        self.loops.lock().clone()
    }
}
