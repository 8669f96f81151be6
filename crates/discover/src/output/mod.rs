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

/// Creates the report in `format`, written to `sink`.
///
/// # Errors
/// The format does not support scans.
pub(crate) fn report(
    format: Format,
    sink: Sink,
    style: ReportStyle,
    started_at_us: i64,
) -> Outcome<Box<dyn Report>> {
    Ok(match format {
        Format::Table => Box::new(table::TableReport::new(sink, style, started_at_us)),
        Format::Wide => {
            let style = ReportStyle { width: None, ..style };
            Box::new(table::TableReport::new(sink, style, started_at_us))
        }
        Format::Json => Box::new(json::JsonReport::document(sink, style, started_at_us)),
        Format::Jsonl => Box::new(json::JsonReport::lines(sink, style)),
        Format::Csv => Box::new(csv::CsvReport::new(sink)),
        Format::Html => Box::new(html::HtmlReport::new(sink, started_at_us)),
        Format::Yaml | Format::Name => {
            return Err(Problem::usage("a scan has no yaml or name output").hint(
                "use table, wide, json, jsonl, csv or html; `bulla inventory list` supports the other formats",
            ));
        }
    })
}
