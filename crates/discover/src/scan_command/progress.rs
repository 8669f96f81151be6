//! The progress bar on standard error.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cli::units::{count, elapsed};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use scan::Progress;

/// Redraws per second: smooth, with negligible cost.
const REDRAWS_PER_SECOND: u8 = 8;
/// Maximum number of kinds of failure on the bar.
const FAILURES_SHOWN: usize = 3;

/// A progress bar of the scan, shown until dropped.
pub(crate) struct Bar {
    bar: ProgressBar,
    progress: Arc<Progress>,
    began: Instant,
}

impl Bar {
    /// Creates a bar; it is hidden unless `visible`.
    pub(crate) fn new(progress: Arc<Progress>, expected: Option<u64>, visible: bool) -> Self {
        let visible = visible && std::io::stderr().is_terminal();
        let target = if visible {
            ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(expected, target);
        let template = match expected {
            Some(_) => "{bar:24.cyan/dim} {pos}/{len}  {msg}",
            None => "{spinner:.cyan} {pos}  {msg}",
        };
        // The templates are constants, and a test draws both.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━╸─"));
        }
        Self { bar, progress, began: Instant::now() }
    }

    /// Returns the interval at which to call [`Bar::update`]: the interval between two redraws.
    pub(crate) fn interval() -> Duration {
        Duration::from_millis(1_000 / u64::from(REDRAWS_PER_SECOND))
    }

    /// Draws the current state. `waiting`: text that says why the scan waits for the database.
    pub(crate) fn update(&self, waiting: Option<&str>) {
        if self.bar.is_hidden() {
            return;
        }
        let now = self.progress.snapshot();
        let done = now.finished + now.skipped;
        if self.bar.length().is_some_and(|length| length < now.queued + now.skipped) {
            self.bar.set_length(now.queued + now.skipped);
        }
        self.bar.set_position(done);
        self.bar.set_message(self.message(&now, waiting));
    }

    fn message(&self, now: &scan::Snapshot, waiting: Option<&str>) -> String {
        let seconds = self.began.elapsed().as_secs_f64().max(0.001);
        let rate = now.finished as f64 / seconds;
        let mut parts = vec![format!("{}/s", count(rate.round() as u64))];
        if self.bar.length().is_none() {
            parts.insert(0, format!("of {} so far", count(now.queued + now.skipped)));
        }
        if let Some(left) = self.time_left(now, rate) {
            parts.push(format!("{} left", elapsed(left)));
        }
        for (outcome, number) in now.failures.iter().take(FAILURES_SHOWN) {
            parts.push(format!("{} {}", count(*number), outcome.name()));
        }
        if now.second_pass > 0 {
            parts.push(format!("{} did not answer, retried last", count(now.second_pass as u64)));
        }
        if let Some(waiting) = waiting {
            parts.push(format!("waiting for the database: {waiting}"));
        }
        parts.join("  ")
    }

    /// Returns the remaining time at the current rate; `None` while there is not enough data.
    fn time_left(&self, now: &scan::Snapshot, rate: f64) -> Option<Duration> {
        let left = self.bar.length()?.checked_sub(now.finished + now.skipped)?;
        if left == 0 || now.finished < 20 || rate < 0.1 {
            return None;
        }
        Some(Duration::from_secs_f64((left as f64 / rate).min(1e7)).max(Duration::from_secs(1)))
    }

    /// Prints a line above the bar.
    pub(crate) fn print_line(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Removes the bar, before results are printed.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_progress_bar_templates_are_valid() {
        for template in ["{bar:24.cyan/dim} {pos}/{len}  {msg}", "{spinner:.cyan} {pos}  {msg}"] {
            assert!(indicatif::ProgressStyle::with_template(template).is_ok());
        }
    }
}
