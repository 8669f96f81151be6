//! Pages of rows, in any of the formats.

use std::io::{self, BufWriter, Write};

use clap::Args;
use store::{Cursor, Page, StoreError};

use crate::api::{Columns, Document};
use crate::exit::{Outcome, Problem};
use crate::output::{Csv, Format};
use crate::terminal::{Colour, Paint, table, width};

/// Which part of a listing, and how to write it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Pages {
    /// Rows of this page
    #[arg(long, value_name = "ROWS", default_value_t = 100, help_heading = "Pages")]
    pub(crate) limit: usize,
    /// Go on where a page ended: the cursor it gave
    #[arg(long, value_name = "CURSOR", help_heading = "Pages")]
    pub(crate) after: Option<Cursor>,
    /// Every page, one after the other
    #[arg(long, help_heading = "Pages")]
    pub(crate) all: bool,
    /// How to write the rows
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "table", help_heading = "Output")]
    pub(crate) output: Format,
    /// When to colour
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto", help_heading = "Output")]
    pub(crate) color: Colour,
}

/// A row that can be written in every format.
pub(crate) trait Listed {
    /// Heads of the table's columns.
    const TABLE: &'static [&'static str];
    /// Names of the CSV's columns; they never change, new ones come last.
    const CSV: &'static [&'static str];
    /// The table's cells.
    fn cells(&self, paint: Paint) -> Vec<comfy_table::Cell>;
    /// The CSV's fields.
    fn fields(&self) -> Vec<String>;
    /// The row for programs.
    fn json(&self) -> serde_json::Value;
}

/// Rows of a page when all are read.
const PAGE_ROWS: usize = 1_000;

/// Prints one page, or all.
pub(crate) async fn list<T: Listed>(
    pages: &Pages,
    fetch: impl AsyncFn(Option<Cursor>, usize) -> Result<Page<T>, StoreError>,
) -> Outcome<()> {
    list_in_turn(pages, vec![()], async |(), after, limit| fetch(after, limit).await).await
}

/// Prints one page, or all, of several listings one after the other.
pub(crate) async fn list_in_turn<K: Clone, T: Listed>(
    pages: &Pages,
    of: Vec<K>,
    fetch: impl AsyncFn(K, Option<Cursor>, usize) -> Result<Page<T>, StoreError>,
) -> Outcome<()> {
    let mut printer = Printer::new(pages.output, pages.color)?;
    let mut next = None;
    for which in of {
        let mut after = pages.after.clone();
        loop {
            let limit = if pages.all { PAGE_ROWS } else { pages.limit.max(1) };
            let page = fetch(which.clone(), after, limit).await.map_err(|error| wrong(&error))?;
            printer.page(&page.rows).map_err(|error| Problem::output(&error))?;
            after = page.next;
            if after.is_none() || !pages.all {
                break;
            }
        }
        next = after;
    }
    printer.end(next.as_ref()).map_err(|error| Problem::output(&error))
}

/// The page with each row made into another.
pub(crate) fn map<A, B>(page: Page<A>, make: impl FnMut(A) -> B) -> Page<B> {
    Page { rows: page.rows.into_iter().map(make).collect(), next: page.next }
}

/// What the user asked wrongly is told apart from what the database did.
pub(crate) fn wrong(error: &StoreError) -> Problem {
    match error {
        StoreError::BadCursor
        | StoreError::UnknownScan(_)
        | StoreError::BadFingerprint(_)
        | StoreError::AmbiguousFingerprint(_) => Problem::usage(error),
        _ => Problem::inventory(error),
    }
}

/// Prints pages of rows as they come.
pub(crate) struct Printer {
    out: BufWriter<io::Stdout>,
    format: Format,
    paint: Paint,
    rows: u64,
}

impl Printer {
    /// Rows in `format`.
    pub(crate) fn new(format: Format, colour: Colour) -> Outcome<Self> {
        if format == Format::Html {
            return Err(Problem::usage("these rows are not written as HTML")
                .hint("use table, json, jsonl or csv; `bulla scan … --output html` makes a report"));
        }
        let paint = Paint(colour.on_stdout());
        Ok(Self { out: BufWriter::new(io::stdout()), format, paint, rows: 0 })
    }

    /// Prints some more.
    pub(crate) fn page<T: Listed>(&mut self, rows: &[T]) -> io::Result<()> {
        let first = self.rows == 0;
        match self.format {
            Format::Table | Format::Html => self.table(rows, first)?,
            Format::Json => self.json(rows.iter().map(Listed::json), first)?,
            Format::Jsonl => {
                for row in rows {
                    serde_json::to_writer(&mut self.out, &row.json())?;
                    self.out.write_all(b"\n")?;
                }
            }
            Format::Csv => {
                let mut csv = Csv::new(&mut self.out);
                if first {
                    csv.record(T::CSV.iter().copied())?;
                }
                for row in rows {
                    csv.record(row.fields().iter().map(String::as_str))?;
                }
            }
        }
        self.rows += rows.len() as u64;
        self.out.flush()
    }

    fn table<T: Listed>(&mut self, rows: &[T], first: bool) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let head = if first { T::TABLE } else { &[] };
        let mut shown = table(head, self.paint, width());
        for row in rows {
            shown.add_row(row.cells(self.paint));
        }
        writeln!(self.out, "{}", shown.trim_fmt())
    }

    fn json(&mut self, rows: impl Iterator<Item = serde_json::Value>, first: bool) -> io::Result<()> {
        for (at, row) in rows.enumerate() {
            // With the first row: without any it is printed at the end.
            self.out.write_all(if first && at == 0 { &b"{\"rows\":[\n"[..] } else { b",\n" })?;
            serde_json::to_writer(&mut self.out, &row)?;
        }
        Ok(())
    }

    /// Prints some more documents of a server.
    pub(crate) fn documents(&mut self, rows: &[Document], columns: Columns) -> io::Result<()> {
        let first = self.rows == 0;
        match self.format {
            Format::Table | Format::Html if !rows.is_empty() => {
                let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
                let mut shown = table(if first { &heads } else { &[] }, self.paint, width());
                for row in rows {
                    shown.add_row(row.fields(columns));
                }
                writeln!(self.out, "{}", shown.trim_fmt())?;
            }
            Format::Table | Format::Html => {}
            Format::Json => self.json(rows.iter().map(|row| row.json().clone()), first)?,
            Format::Jsonl => {
                for row in rows {
                    serde_json::to_writer(&mut self.out, row.json())?;
                    self.out.write_all(b"\n")?;
                }
            }
            Format::Csv => {
                let mut csv = Csv::new(&mut self.out);
                if first {
                    csv.record(columns.iter().map(|(_, pointer)| pointer.trim_start_matches('/')))?;
                }
                for row in rows {
                    csv.record(row.fields(columns).iter().map(String::as_str))?;
                }
            }
        }
        self.rows += rows.len() as u64;
        self.out.flush()
    }

    /// Prints what belongs after the last row; `next` is where a further page begins.
    pub(crate) fn end(self, next: Option<&Cursor>) -> io::Result<()> {
        self.end_at(next.map(ToString::to_string).as_deref())
    }

    /// [`Printer::end`] with the cursor as text.
    pub(crate) fn end_at(mut self, next: Option<&str>) -> io::Result<()> {
        match (self.format, next) {
            (Format::Json, _) => {
                if self.rows == 0 {
                    self.out.write_all(b"{\"rows\":[")?;
                }
                let next = serde_json::json!(next);
                writeln!(self.out, "\n],\"next\":{next}}}")?;
            }
            (_, Some(next)) => eprintln!("there is more: --after {next}, or --all"),
            (Format::Table, None) if self.rows == 0 => eprintln!("nothing to show"),
            _ => {}
        }
        self.out.flush()
    }
}
