//! JSON: one document (`--output json`) or one per line (`--output jsonl`). Both are streamed as results arrive.

use std::io::{self, Write};

use scan::{EstateFinding, Observation};
use serde::Serialize;

use super::record::Endpoint;
use super::{Report, ReportStyle, ScanSummary, Sink, Summary, Tally};

/// A JSON report: streams observations, and keeps at most one in memory.
pub(crate) struct JsonReport {
    sink: Sink,
    form: Form,
    first: bool,
    pem: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Document,
    Lines,
}

/// One line of the JSON lines output, with the type of its content.
#[derive(Serialize)]
struct Line<'a, T: Serialize> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    content: &'a T,
}

impl JsonReport {
    /// Writes one JSON document.
    pub(crate) fn document(sink: Sink, style: ReportStyle, started_at_us: i64) -> Self {
        let mut report = Self { sink, form: Form::Document, first: true, pem: style.pem };
        let head = serde_json::json!(cli::units::rfc3339_us(started_at_us));
        // A write error repeats at the first observation or at the close, which report it.
        let _ = write!(
            report.sink,
            "{{\"bulla\":\"{}\",\"started_at\":{head},\"observations\":[",
            env!("CARGO_PKG_VERSION")
        );
        report
    }

    /// Writes one JSON object per line.
    pub(crate) fn lines(sink: Sink, style: ReportStyle) -> Self {
        Self { sink, form: Form::Lines, first: true, pem: style.pem }
    }

    fn line<T: Serialize>(&mut self, kind: &'static str, content: &T) -> io::Result<()> {
        serde_json::to_writer(&mut self.sink, &Line { kind, content })?;
        self.sink.write_all(b"\n")
    }
}

impl Report for JsonReport {
    fn observe(&mut self, observation: &Observation) -> io::Result<()> {
        let mut endpoint = Endpoint::of(observation);
        if self.pem {
            endpoint.include_pem(observation);
        }
        if self.form == Form::Lines {
            return self.line("endpoint", &endpoint);
        }
        self.sink.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        serde_json::to_writer(&mut self.sink, &endpoint)?;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    fn close(
        mut self: Box<Self>,
        tally: &Tally,
        estate: &[EstateFinding],
        closing: &ScanSummary,
    ) -> io::Result<()> {
        let summary = Summary::of(tally, closing);
        if self.form == Form::Lines {
            for finding in estate {
                self.line("estate", finding)?;
            }
            self.line("summary", &summary)?;
            return self.sink.flush();
        }
        self.sink.write_all(b"\n],\"estate\":")?;
        serde_json::to_writer(&mut self.sink, estate)?;
        self.sink.write_all(b",\n\"summary\":")?;
        serde_json::to_writer(&mut self.sink, &summary)?;
        self.sink.write_all(b"}\n")?;
        self.sink.flush()
    }
}
