//! Output of a scan: for people (table, HTML) and for programs (JSON, JSON lines, CSV).

mod csv;
mod html;
mod json;
pub(crate) mod record;
mod report;
pub(crate) mod row;
pub(crate) mod session;
mod table;
pub(crate) mod tally;

use cli::exit::{Outcome, Problem};
use cli::format::Format;

pub(crate) use report::{Report, ReportStyle, Sink, sink};
pub(crate) use table::expires;
pub(crate) use tally::{ScanSummary, Stored, Summary, Tally};

/// Output format of a scan.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum ReportFormat {
    /// Aligned columns for people, worst first
    #[default]
    Table,
    /// A table with all columns, whatever the width of the terminal
    Wide,
    /// One JSON document
    Json,
    /// One JSON document per line, as soon as a result arrives
    Jsonl,
    /// RFC 4180, one row per record
    Csv,
    /// One self-contained page with charts
    Html,
}

impl ReportFormat {
    /// Returns the format of a list of rows without a report.
    ///
    /// # Errors
    /// The format is HTML.
    pub(crate) fn of_rows(self) -> Outcome<Format> {
        match self {
            Self::Table => Ok(Format::Table),
            Self::Wide => Ok(Format::Wide),
            Self::Json => Ok(Format::Json),
            Self::Jsonl => Ok(Format::Jsonl),
            Self::Csv => Ok(Format::Csv),
            Self::Html => Err(Problem::usage("a scan with --liveness has no HTML output")
                .hint("use --output table, wide, json, jsonl or csv")),
        }
    }
}

/// Creates the report in `format`, written to `sink`.
pub(crate) fn report(
    format: ReportFormat,
    sink: Sink,
    style: ReportStyle,
    started_at_us: i64,
) -> Box<dyn Report> {
    match format {
        ReportFormat::Table => Box::new(table::TableReport::new(sink, style, started_at_us)),
        ReportFormat::Wide => {
            let style = ReportStyle { width: None, ..style };
            Box::new(table::TableReport::new(sink, style, started_at_us))
        }
        ReportFormat::Json => Box::new(json::JsonReport::document(sink, style, started_at_us)),
        ReportFormat::Jsonl => Box::new(json::JsonReport::lines(sink, style)),
        ReportFormat::Csv => Box::new(csv::CsvReport::new(sink)),
        ReportFormat::Html => Box::new(html::HtmlReport::new(sink, started_at_us)),
    }
}
