//! Prints listings and single documents of the API: as tables for people, as JSON and CSV for programs.

use std::io::{IsTerminal as _, Write};
use std::time::Duration;

use api::listing::PageQuery;
use clap::Args;
use comfy_table::Cell;
use serde::Serialize;
use serde_json::Value;

use super::Client;
use super::row::{Columns, DocumentRow, text};
use crate::exit::{Exit, Outcome, Problem, print};
use crate::format::Format;
use crate::printer::Printer;
use crate::query::Query;
use crate::terminal::{Colour, Paint, table, width};
use crate::{units, yaml};

/// The format of the output, and whether it has colours.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct Output {
    /// How to write it
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "table")]
    pub output: Format,
    /// When to colour
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: Colour,
    /// Print what this JMESPath expression finds, as JSON: of a list "[?state=='failed'].name", of one document "name"
    #[arg(long, value_name = "JMESPATH")]
    pub query: Option<Query>,
}

/// Which pages of a listing to print.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Pages")]
pub struct Listing {
    /// Rows of this page
    #[arg(long, value_name = "ROWS", default_value_t = 50)]
    limit: u32,
    /// Go on where a page ended: the cursor it gave
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Every page, one after the other
    #[arg(long)]
    all: bool,
    /// Print again every 2 s, or as often as given, until Ctrl-C
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, default_missing_value = "2s", value_parser = units::duration)]
    watch: Option<Duration>,
    #[command(flatten)]
    pub(crate) show: Output,
}

/// Most rows the server gives in a page.
pub(super) const PAGE_ROWS: u32 = 500;

impl Listing {
    /// Prints one page of `path`, or all. The query is a type of crate `api`, `()` for none.
    pub async fn print(
        &self,
        client: &Client,
        path: &str,
        query: &impl Serialize,
        columns: Columns,
    ) -> Outcome<()> {
        self.print_as(client, path, query, columns, |item| item).await
    }

    /// As [`Listing::print`], with each document changed by `shown` before it is printed.
    pub async fn print_as(
        &self,
        client: &Client,
        path: &str,
        query: &impl Serialize,
        columns: Columns,
        shown: fn(Value) -> Value,
    ) -> Outcome<()> {
        let Some(every) = self.watch else {
            return self.print_once(client, path, query, columns, shown).await;
        };
        loop {
            if std::io::stdout().is_terminal() {
                print!("{CLEAR}");
            }
            self.print_once(client, path, query, columns, shown).await?;
            tokio::time::sleep(every).await;
        }
    }

    async fn print_once(
        &self,
        client: &Client,
        path: &str,
        query: &impl Serialize,
        columns: Columns,
        shown: fn(Value) -> Value,
    ) -> Outcome<()> {
        let mut printer = Printer::new(self.show.output, self.show.color)?;
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
            Some(query) => print_found(query, &Value::Array(found)),
            None => printer.end(after.as_deref()).map_err(|error| Problem::output(&error)),
        }
    }
}

/// Clears a terminal and goes to its first line (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints what `query` finds in `document`, as JSON.
fn print_found(query: &Query, document: &Value) -> Outcome<()> {
    let found = query.search(document)?;
    let text = serde_json::to_string_pretty(&found).map_err(|error| Problem::new(Exit::Machine, error))?;
    print(&text)
}

/// Prints one document: a member a line for people, or the document.
pub fn show_one(document: &Value, output: &Output) -> Outcome<()> {
    if let Some(query) = &output.query {
        return print_found(query, document);
    }
    let mut out = std::io::stdout().lock();
    let mut print = || -> std::io::Result<()> {
        match (output.output, document) {
            (_, Value::Null) => Ok(()),
            (Format::Table, Value::Object(members)) => {
                let mut shown = table(&[], Paint(output.color.on_stdout()), width());
                for (name, value) in members.iter().filter(|(_, value)| !empty(value)) {
                    shown.add_row(vec![Cell::new(name.replace('_', " ")), Cell::new(text(value))]);
                }
                writeln!(out, "{}", shown.trim_fmt())
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
        Value::Array(all) => all.is_empty(),
        Value::Object(all) => all.is_empty(),
        _ => false,
    }
}
