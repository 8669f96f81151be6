//! Destination of the log lines of all entries.

use std::sync::Arc;

use super::line::{Line, Observer};
use super::spool::Spool;

/// Destination of log lines: an optional queue to a file or standard output, and the process's log.
pub(super) struct Log {
    pub(super) lines: Option<Spool<Line>>,
    pub(super) observer: Option<Arc<dyn Observer>>,
    /// Name of the trace span of each request.
    pub(super) service: &'static str,
}

impl Log {
    pub(super) fn write(&self, line: &Line) {
        line.write_to_log();
        if let Some(lines) = &self.lines {
            lines.put(line.clone());
        }
    }
}
