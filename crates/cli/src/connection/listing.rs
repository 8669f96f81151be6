//! Prints listings and single documents of the API: as tables for people, as JSON and CSV for programs.

use std::io::Write;

use api::csv::Csv;
use api::listing::PageQuery;
use clap::Args;
use comfy_table::Cell;
use serde::Serialize;
use serde_json::Value;

use super::Client;
use super::row::{Columns, DocumentRow, Style, text};
use crate::exit::{Exit, Outcome, Problem, print};
use crate::format::Format;
use crate::printer::Printer;
use crate::query::Query;
use crate::repeat::Repeat;
use crate::terminal::{Colour, Paint, table, width};
use crate::yaml;

/// Output options: format, colour, and a query that selects a part of the result.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct Output {
    /// Output format
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "table")]
    pub output: Format,
    /// When to use colour
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: Colour,
    /// Print the result of this JMESPath expression as JSON: for a list "[?state=='failed'].name", for one document "name"
    #[arg(long, value_name = "JMESPATH")]
    pub query: Option<Query>,
}

/// Options of a listing: the pages to print, and the output.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Pages")]
pub struct Listing {
    /// Rows per page
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Continue after a page: the cursor that it printed
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Print all pages
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    repeat: Repeat,
    #[command(flatten)]
    pub(crate) show: Output,
}

/// Output options of a listing that has no pages.
#[derive(Args, Clone, Debug)]
pub struct ShortListing {
    #[command(flatten)]
    repeat: Repeat,
    #[command(flatten)]
    show: Output,
}

/// Maximum rows per page of the server.
pub(super) const PAGE_ROWS: u32 = 500;

impl Output {
    /// Returns whether the output is a table, not documents or the result of a query.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.output, Format::Table | Format::Wide) && self.query.is_none()
    }
}

impl Listing {
    /// Prints one page of `path`, or all pages. The query is a type of crate `api`, or `()` for none.
    pub async fn print(
        &self,
        client: &Client,
        path: &str,
        query: &impl Serialize,
        columns: Columns,
    ) -> Outcome<()> {
        self.print_mapped(client, path, query, columns, |item| item).await
    }

    /// Like [`Listing::print`], with each document converted by `shown` first.
    pub async fn print_mapped(
        &self,
        client: &Client,
        path: &str,
        query: &impl Serialize,
        columns: Columns,
        shown: fn(Value) -> Value,
    ) -> Outcome<()> {
        self.repeat.run(async || self.print_once(client, path, query, columns, shown).await).await
    }

    /// Returns the maximum number of rows; `None` for all.
    pub(crate) fn rows_max(&self) -> Option<usize> {
        (!self.all).then_some(self.limit as usize)
    }

    /// Returns the name of the first given flag that only works with a server (`--after` or `--watch`); `None` if neither was
    /// given.
    pub(crate) fn flag_of_servers(&self) -> Option<&'static str> {
        match self {
            Self { after: Some(_), .. } => Some("--after"),
            Self { repeat, .. } if repeat.is_on() => Some("--watch"),
            _ => None,
        }
    }

    /// Prints documents that do not come from the server.
    pub(crate) fn print_documents(&self, documents: Vec<Value>, columns: Columns) -> Outcome<()> {
        print_rows(documents, columns, &self.show)
    }

    async fn print_once(
        &self,
        client: &Client,
        path: &str,
        query: &impl Serialize,
        columns: Columns,
        shown: fn(Value) -> Value,
    ) -> Outcome<()> {
        let mut printer = Printer::new(self.show.output, self.show.color);
        let (mut after, mut found) = (self.after.clone(), Vec::new());
        loop {
            let limit = if self.all { PAGE_ROWS } else { self.limit.clamp(1, PAGE_ROWS) };
            let page = PageQuery { limit: Some(limit), cursor: after.take(), fields: None };
            let listing: api::listing::Listing<Value> = client.fetch(path, &page.of(query)).await?;
            let rows = listing.items.into_iter().map(shown);
            if self.show.query.is_some() {
                found.extend(rows);
            } else {
                let rows: Vec<DocumentRow> = rows.map(DocumentRow::of).collect();
                printer.documents(&rows, columns).map_err(|error| Problem::output(&error))?;
                if let Some(total) = listing.total {
                    printer.total(total);
                }
            }
            after = listing.next;
            if after.is_none() || !self.all {
                break;
            }
        }
        match &self.show.query {
            Some(query) => print_query_result(query, &Value::Array(found)),
            None => printer.end(after.as_deref()).map_err(|error| Problem::output(&error)),
        }
    }
}

impl ShortListing {
    /// Returns whether the output is a table, not documents or the result of a query.
    pub fn is_table(&self) -> bool {
        self.show.is_table()
    }

    /// Prints the documents that `fetch` returns.
    pub async fn print(&self, columns: Columns, fetch: impl AsyncFn() -> Outcome<Vec<Value>>) -> Outcome<()> {
        self.repeat.run(async || print_rows(fetch().await?, columns, &self.show)).await
    }
}

/// Prints documents as rows, or the result of a query on them.
pub fn print_rows(documents: Vec<Value>, columns: Columns, show: &Output) -> Outcome<()> {
    if let Some(query) = &show.query {
        return print_query_result(query, &Value::Array(documents));
    }
    let mut printer = Printer::new(show.output, show.color);
    let rows: Vec<DocumentRow> = documents.into_iter().map(DocumentRow::of).collect();
    let printed = printer.documents(&rows, columns).and_then(|()| printer.end(None));
    printed.map_err(|error| Problem::output(&error))
}

/// Prints the result of `query` on `document`, as JSON.
pub fn print_query_result(query: &Query, document: &Value) -> Outcome<()> {
    let found = query.search(document)?;
    let text = serde_json::to_string_pretty(&found).map_err(|error| Problem::new(Exit::Machine, error))?;
    print(&text)
}

/// Prints one document: one field per line for people, or the whole document for programs.
pub fn show_one(document: &Value, output: &Output) -> Outcome<()> {
    if let Some(query) = &output.query {
        return print_query_result(query, document);
    }
    let mut out = std::io::stdout().lock();
    let mut print = || -> std::io::Result<()> {
        match (output.output, document) {
            (_, Value::Null) => Ok(()),
            (format @ (Format::Table | Format::Wide), Value::Object(members)) => {
                let width = if format == Format::Wide { None } else { width() };
                let mut shown = table(&[], Paint(output.color.applies_to_stdout()), width);
                for (name, value) in members.iter().filter(|(_, value)| !empty(value)) {
                    shown.add_row(vec![
                        Cell::new(name.replace('_', " ")),
                        Cell::new(text(value, Style::Table)),
                    ]);
                }
                writeln!(out, "{}", shown.trim_fmt())
            }
            (Format::Csv, Value::Object(members)) => {
                let mut csv = Csv::new(&mut out);
                csv.record(members.keys().map(String::as_str))?;
                let fields: Vec<String> = members.values().map(|value| text(value, Style::Program)).collect();
                csv.record(fields.iter().map(String::as_str))
            }
            (Format::Jsonl, _) => writeln!(out, "{document}"),
            (Format::Yaml, _) => out.write_all(yaml::document(document).as_bytes()),
            (Format::Name, _) => writeln!(out, "{}", DocumentRow::of(document.clone()).name(&[])),
            _ => {
                serde_json::to_writer_pretty(&mut out, document)?;
                writeln!(out)
            }
        }
    };
    print().and_then(|()| std::io::stdout().flush()).map_err(|error| Problem::output(&error))
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn page_has_at_least_one_row() {
        #[derive(Debug, Parser)]
        struct Line {
            #[command(flatten)]
            listing: Listing,
        }
        let limit = |text: &str| Line::try_parse_from(["x", "--limit", text]).map(|line| line.listing.limit);
        assert_eq!(limit("1").unwrap(), 1);
        assert!(limit("0").unwrap_err().to_string().contains("--limit"));
    }

    #[test]
    fn documents_without_a_value_have_no_row() {
        for value in [Value::Null, serde_json::json!(""), serde_json::json!([]), serde_json::json!({})] {
            assert!(empty(&value), "{value}");
        }
        assert!(!empty(&serde_json::json!(false)) && !empty(&serde_json::json!(0)));
    }
}
