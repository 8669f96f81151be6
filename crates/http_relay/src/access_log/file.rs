//! Destinations of the access log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use super::line::Line;
use super::spool::Sink;

/// Destination of the access log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AccessLog {
    /// Standard output.
    Output,
    /// A file to append to. A new file is readable and writable by its owner only.
    File(PathBuf),
}

/// Returns options that create files for their owner only (read and write).
pub fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// A file to which log lines are written as JSON.
pub(super) struct AccessFile {
    destination: AccessLog,
    file: Option<File>,
}

impl AccessFile {
    /// Opens the destination.
    ///
    /// # Errors
    /// The file cannot be opened for writing.
    pub(super) fn open(destination: AccessLog) -> io::Result<Self> {
        let mut this = Self { destination, file: None };
        this.reopen()?;
        Ok(this)
    }

    fn add(&mut self, items: &[Line]) -> io::Result<()> {
        let mut text = Vec::new();
        for line in items {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        match &mut self.file {
            Some(file) => file.write_all(&text),
            None => {
                let mut out = io::stdout().lock();
                out.write_all(&text)?;
                out.flush()
            }
        }
    }
}

impl Sink for AccessFile {
    type Item = Line;
    const TASK: &'static str = "proxy-access-log";

    fn write(&mut self, items: &[Line]) -> (usize, io::Result<()>) {
        let done = self.add(items);
        (if done.is_ok() { items.len() } else { 0 }, done)
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let AccessLog::File(path) = &self.destination {
            self.file = Some(private().append(true).create(true).open(path)?);
        }
        Ok(())
    }
}
