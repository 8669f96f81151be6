//! The log that entries write their lines to.

use super::line::Line;
use super::spool::Spool;

/// A log of lines: the queue of its own destination, if it has one, and the process's log.
pub(super) struct Log {
    pub(super) lines: Option<Spool<Line>>,
}

impl Log {
    pub(super) fn write(&self, line: &Line) {
        line.tell();
        if let Some(lines) = &self.lines {
            lines.put(line.clone());
        }
    }
}
