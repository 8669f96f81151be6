//! Progress and results of exports and imports.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::remote::Failure;

/// Interval of progress lines on a terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of failures that are named. Further ones are counted.
const NAMED_FAILURES_MAX: usize = 1_000;

/// Progress lines on standard error, only on a terminal.
pub(super) struct Progress {
    what: &'static str,
    all: usize,
    shown: Option<Instant>,
}

impl Progress {
    pub(super) fn new(what: &'static str, all: usize) -> Self {
        Self { what, all, shown: std::io::stderr().is_terminal().then(Instant::now) }
    }

    pub(super) fn at(&mut self, done: u64) {
        if self.shown.is_some_and(|shown| shown.elapsed() >= PROGRESS_INTERVAL) {
            eprintln!("{} {done} of {}", self.what, self.all);
            self.shown = Some(Instant::now());
        }
    }
}

/// A failure in a report.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum FailureLine<'a> {
    /// The failure of one credential, with its name.
    Named { name: &'a str, error: &'a str },
    /// The number of further failures.
    Others { more: usize },
}

/// Converts failures to lines of a report: up to [`NAMED_FAILURES_MAX`] failures with their names, then the number of the others.
pub(super) fn failures(all: &[Failure]) -> Vec<FailureLine<'_>> {
    let named = all.iter().take(NAMED_FAILURES_MAX);
    let named = named.map(|one| FailureLine::Named { name: &one.name, error: &one.why });
    let more = all.len().saturating_sub(NAMED_FAILURES_MAX);
    named.chain((more > 0).then_some(FailureLine::Others { more })).collect()
}
