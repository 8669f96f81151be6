//! The output of a scan: what every format does, and where it goes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use cli::exit::{Exit, Outcome, Problem};
use cli::terminal::Paint;
use scan::{EstateFinding, Observation};

use super::tally::{Closing, Tally};

/// Destination of the results.
pub(crate) type Sink = Box<dyn Write + Send>;

/// The whole of a scan's output, in one format.
pub(crate) trait Report: Send {
    /// Takes an observation; formats that stream write it now.
    fn observe(&mut self, observation: &Observation) -> io::Result<()>;

    /// Hands what was written so far to the reader.
    fn flush(&mut self) -> io::Result<()>;

    /// Writes the rest: what only shows at the end.
    fn close(self: Box<Self>, tally: &Tally, estate: &[EstateFinding], closing: &Closing) -> io::Result<()>;
}

/// How the formats for people look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportStyle {
    /// Rows of the table; 0 for all.
    pub(crate) rows: usize,
    pub(crate) paint: Paint,
    pub(crate) width: Option<u16>,
    /// Only the findings and the table, no summary.
    pub(crate) quiet: bool,
    /// JSON has the certificates as PEM.
    pub(crate) pem: bool,
}

/// Standard output, or a new file in place of an old one.
pub(crate) fn sink(path: Option<&Path>) -> Outcome<Sink> {
    /// One write per 64 KiB: about forty observations.
    const BUFFER_OCTETS: usize = 64 * 1024;
    let Some(path) = path else {
        return Ok(Box::new(BufWriter::with_capacity(BUFFER_OCTETS, io::stdout())));
    };
    let file = File::create(path).map_err(|error| {
        Problem::new(Exit::Usage, format_args!("cannot write {}: {error}", path.display()))
            .hint("choose a file in a folder that exists and that you may write to")
    })?;
    Ok(Box::new(BufWriter::with_capacity(BUFFER_OCTETS, file)))
}
