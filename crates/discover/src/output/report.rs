//! The output of a scan: the trait of all formats, and the destination.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use cli::exit::{Exit, Outcome, Problem};
use cli::terminal::Paint;
use scan::{EstateFinding, Observation};

use super::tally::{ScanSummary, Tally};

/// Destination of a report: standard output or a file.
pub(crate) type Sink = Box<dyn Write + Send>;

/// The output of a scan, in one format.
pub(crate) trait Report: Send {
    /// Processes an observation. Streaming formats write it immediately.
    fn observe(&mut self, observation: &Observation) -> io::Result<()>;

    /// Flushes the output written so far.
    fn flush(&mut self) -> io::Result<()>;

    /// Writes the remaining output, which needs the results of the whole scan.
    fn close(
        self: Box<Self>,
        tally: &Tally,
        estate: &[EstateFinding],
        closing: &ScanSummary,
    ) -> io::Result<()>;
}

/// Options of the output of a scan, from the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportStyle {
    /// Rows of the table; 0 means all.
    pub(crate) rows: usize,
    pub(crate) paint: Paint,
    pub(crate) width: Option<u16>,
    /// Whether to print only findings and the table, without summary.
    pub(crate) quiet: bool,
    /// Whether JSON includes the certificates as PEM.
    pub(crate) pem: bool,
}

/// Opens standard output, or a new file that replaces an existing one.
pub(crate) fn sink(path: Option<&Path>) -> Outcome<Sink> {
    /// Buffer size. One write has about forty observations.
    const BUFFER_BYTES: usize = 64 * 1024;
    let Some(path) = path else {
        return Ok(Box::new(BufWriter::with_capacity(BUFFER_BYTES, io::stdout())));
    };
    let file = File::create(path).map_err(|error| {
        Problem::new(Exit::Usage, format_args!("cannot write {}: {error}", path.display()))
            .hint("choose a file in a folder that exists and that you may write to")
    })?;
    Ok(Box::new(BufWriter::with_capacity(BUFFER_BYTES, file)))
}
