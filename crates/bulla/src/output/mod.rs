//! What a scan prints: for people (table, HTML) and for programs (JSON, JSON lines, CSV).

mod csv;
mod html;
mod json;
pub(crate) mod record;
pub(crate) mod row;
pub(crate) mod session;
mod table;
pub(crate) mod tally;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use scan::{EstateFinding, Observation};

pub(crate) use csv::Csv;
pub(crate) use table::expires;
pub(crate) use tally::{Closing, Stored, Summary, Tally};

use crate::exit::{Exit, Outcome, Problem};
use crate::terminal::Paint;

/// How results are written.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// Aligned columns for people, worst first
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One JSON document a line, as results come
    Jsonl,
    /// RFC 4180, one endpoint a record
    Csv,
    /// One self-contained page with charts
    Html,
}

/// Where results are written.
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

/// What people's formats may be told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Rows of the table; 0 for all.
    pub(crate) rows: usize,
    pub(crate) paint: Paint,
    pub(crate) width: Option<u16>,
    /// Only the findings and the table, no summary.
    pub(crate) quiet: bool,
}

/// The report in `format`, into `sink`.
pub(crate) fn report(format: Format, sink: Sink, look: Look, started_at_us: i64) -> Box<dyn Report> {
    match format {
        Format::Table => Box::new(table::TableReport::new(sink, look, started_at_us)),
        Format::Json => Box::new(json::JsonReport::document(sink, started_at_us)),
        Format::Jsonl => Box::new(json::JsonReport::lines(sink)),
        Format::Csv => Box::new(csv::CsvReport::new(sink)),
        Format::Html => Box::new(html::HtmlReport::new(sink, started_at_us)),
    }
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
