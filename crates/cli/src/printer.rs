//! Prints rows page by page, in each format.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};

use crate::connection::{Columns, DocumentRow};
use crate::format::Format;
use crate::terminal::{Colour, Paint, table, width};
use crate::yaml;
use api::csv::Csv;

/// A row that every format can print.
pub trait Listed {
    /// The headings of the table's columns.
    const TABLE: &'static [&'static str];
    /// The names of the CSV columns, which never change. New columns are added at the end.
    const CSV: &'static [&'static str];
    /// Returns the cells of the table row.
    fn cells(&self, paint: Paint) -> Vec<comfy_table::Cell>;
    /// Returns the fields of a CSV record.
    fn fields(&self) -> Vec<String>;
    /// Returns the row as JSON, for programs.
    fn json(&self) -> serde_json::Value;
}

/// A printer that writes pages of rows to standard output as they arrive.
pub struct Printer {
    out: BufWriter<io::Stdout>,
    format: Format,
    paint: Paint,
    rows: u64,
    /// Indexes of the columns that fit the width of the terminal; empty before the first page.
    shown: Vec<usize>,
    /// Heading of one column that has values but does not fit the width of the terminal.
    left_out: Option<&'static str>,
    /// Members of documents that have a column of their own in wide tables; empty before the first page.
    extra_columns: Vec<String>,
}

impl Printer {
    /// Creates a printer of rows in `format`.
    #[must_use]
    pub fn new(format: Format, colour: Colour) -> Self {
        let paint = Paint(colour.applies_to_stdout());
        Self {
            out: BufWriter::new(io::stdout()),
            format,
            paint,
            rows: 0,
            shown: Vec::new(),
            left_out: None,
            extra_columns: Vec::new(),
        }
    }

    /// Prints a page of rows in the format of the printer.
    pub fn page<T: Listed>(&mut self, rows: &[T]) -> io::Result<()> {
        let first = self.rows == 0;
        match self.format {
            Format::Table => {
                let paint = self.paint;
                self.table(T::TABLE, rows.iter().map(|row| row.cells(paint)), first, width())?;
            }
            Format::Wide => {
                let heads: Vec<String> = T::CSV.iter().map(|name| heading(name).to_uppercase()).collect();
                self.table(&heads, rows.iter().map(Listed::fields), first, None)?;
            }
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
            Format::Yaml => rows.iter().try_for_each(|row| self.yaml(&row.json()))?,
            Format::Name => {
                for row in rows {
                    writeln!(self.out, "{}", row.fields().first().map_or("", String::as_str))?;
                }
            }
        }
        self.rows += rows.len() as u64;
        self.out.flush()
    }

    /// Prints the rows of a page. Prints the headings only above the first page.
    fn table<R: Into<comfy_table::Row>>(
        &mut self,
        heads: &[impl AsRef<str>],
        rows: impl Iterator<Item = R>,
        first: bool,
        width: Option<u16>,
    ) -> io::Result<()> {
        let heads: Vec<&str> = heads.iter().filter(|_| first).map(AsRef::as_ref).collect();
        let mut shown = table(&heads, self.paint, width);
        shown.add_rows(rows);
        if shown.is_empty() {
            return Ok(());
        }
        writeln!(self.out, "{}", shown.trim_fmt())
    }

    fn json(&mut self, rows: impl Iterator<Item = serde_json::Value>, first: bool) -> io::Result<()> {
        for (at, row) in rows.enumerate() {
            // The start of the document is written with the first row. Without rows, `end` writes it.
            self.out.write_all(if first && at == 0 { &b"{\"rows\":[\n"[..] } else { b",\n" })?;
            serde_json::to_writer(&mut self.out, &row)?;
        }
        Ok(())
    }

    fn yaml(&mut self, document: &serde_json::Value) -> io::Result<()> {
        self.out.write_all(yaml::document(document).as_bytes())
    }

    /// Prints a page of documents that a server returned, with these columns in a table.
    pub fn documents(&mut self, rows: &[DocumentRow], columns: Columns) -> io::Result<()> {
        let first = self.rows == 0;
        match self.format {
            Format::Table if !rows.is_empty() => {
                let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells(columns)).collect();
                if first {
                    (self.shown, self.left_out) = fitting(columns, &cells, width());
                }
                let shown = std::mem::take(&mut self.shown);
                let heads: Vec<&str> = shown.iter().map(|at| columns[*at].0).collect();
                let cells = cells
                    .into_iter()
                    .map(|mut row| shown.iter().map(|at| std::mem::take(&mut row[*at])).collect::<Vec<_>>());
                self.table(&heads, cells, first, width())?;
                self.shown = shown;
            }
            Format::Table => {}
            Format::Wide => self.wide(rows, columns, first)?,
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
            Format::Yaml => rows.iter().try_for_each(|row| self.yaml(row.json()))?,
            Format::Name => rows.iter().try_for_each(|row| writeln!(self.out, "{}", row.name(columns)))?,
        }
        self.rows += rows.len() as u64;
        self.out.flush()
    }

    /// Prints documents with all columns, and with a column for each other member that has a value on the first page.
    fn wide(&mut self, rows: &[DocumentRow], columns: Columns, first: bool) -> io::Result<()> {
        if first {
            let names: BTreeSet<&str> = rows.iter().flat_map(|row| row.other_members(columns)).collect();
            self.extra_columns = names.into_iter().map(str::to_owned).collect();
        }
        let extra_columns = std::mem::take(&mut self.extra_columns);
        let heads = columns.iter().map(|(head, _)| (*head).to_owned());
        let heads: Vec<String> = heads.chain(extra_columns.iter().map(|name| heading(name))).collect();
        let cells = rows.iter().map(|row| {
            let mut cells = row.cells(columns);
            cells.extend(extra_columns.iter().map(|name| row.cell(name)));
            cells
        });
        self.table(&heads, cells, first, None)?;
        self.extra_columns = extra_columns;
        Ok(())
    }

    /// Prints the total number of rows on all pages, separate from the output.
    pub fn total(&self, total: api::listing::TotalView) {
        let least = if total.exact { "" } else { "at least " };
        eprintln!("{least}{} in total", total.value);
    }

    /// Prints the end of the output. `next` is the cursor of the next page.
    pub fn end(mut self, next: Option<&str>) -> io::Result<()> {
        if let Some(head) = self.left_out {
            eprintln!("the terminal has no room for the column {head}: --output wide shows it");
        }
        match (self.format, next) {
            (Format::Json, _) => {
                if self.rows == 0 {
                    self.out.write_all(b"{\"rows\":[")?;
                }
                let next = serde_json::json!(next);
                writeln!(self.out, "\n],\"next\":{next}}}")?;
            }
            (_, Some(next)) => eprintln!("there are more: --after {next}, or --all"),
            (Format::Table | Format::Wide, None) if self.rows == 0 => eprintln!("no results"),
            _ => {}
        }
        self.out.flush()
    }
}

/// Returns the heading of a column by the name of its member: `created_at` becomes `Created at`.
fn heading(member: &str) -> String {
    let words = member.replace('_', " ");
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Returns the columns that fit a terminal of this width, and the heading of one column that has values and is left out. Empty
/// columns are left out first, from the right; then the ID of objects that have a name.
fn fitting(columns: Columns, rows: &[Vec<String>], width: Option<u16>) -> (Vec<usize>, Option<&'static str>) {
    /// Spaces on both sides of a cell.
    const PADDING: usize = 2;
    let all = || 0..columns.len();
    let longest = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or_default();
    let room = |shown: &[usize]| -> usize {
        shown.iter().map(|at| longest(*at).max(columns[*at].0.chars().count()) + PADDING).sum()
    };
    let mut shown: Vec<usize> = all().collect();
    let Some(width) = width.map(usize::from) else { return (shown, None) };
    for at in all().rev().filter(|at| longest(*at) == 0) {
        if room(&shown) <= width {
            return (shown, None);
        }
        shown.retain(|one| *one != at);
    }
    let column = |pointer: &str| all().find(|at| columns[*at].1 == pointer);
    let is_named = column("/name").is_some_and(|name| rows.iter().all(|row| !row[name].is_empty()));
    match column("/id") {
        Some(id) if is_named && room(&shown) > width => {
            shown.retain(|one| *one != id);
            (shown, Some(columns[id].0))
        }
        _ => (shown, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_terminals_get_fewer_columns() {
        const COLUMNS: Columns =
            &[("Name", "/name"), ("Owner", "/owner"), ("Error", "/error"), ("Id", "/id")];
        let id = "x".repeat(36);
        let row = |name: &str| [name, "", "", &id].map(str::to_owned).to_vec();
        let rows = [row("a.example"), row("b.example")];
        let of = |rows: &[Vec<String>], width| fitting(COLUMNS, rows, width);
        assert_eq!(of(&rows, None), (vec![0, 1, 2, 3], None));
        assert_eq!(of(&rows, Some(63)), (vec![0, 1, 2, 3], None));
        assert_eq!(of(&rows, Some(62)), (vec![0, 1, 3], None));
        assert_eq!(of(&rows, Some(49)), (vec![0, 3], None));
        assert_eq!(of(&rows, Some(48)), (vec![0], Some("Id")));
        // The ID is the only way to name an object without a name.
        assert_eq!(of(&[row("")], Some(20)), (vec![3], None));
    }

    #[test]
    fn heading_of_a_member_has_spaces() {
        assert_eq!(heading("created_at"), "Created at");
    }
}
