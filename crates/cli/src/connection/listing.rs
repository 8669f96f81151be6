//! Prints listings and single documents of the API: as tables for people, as JSON and CSV for programs.

use std::io::Write;

use api::listing::PageQuery;
use clap::Args;
use comfy_table::Cell;
use serde::Serialize;
use serde_json::Value;

use super::Client;
use super::row::{Columns, DocumentRow, text};
use crate::exit::{Outcome, Problem};
use crate::format::Format;
use crate::printer::Printer;
use crate::terminal::{Colour, Paint, table, width};

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
        let mut printer = Printer::new(self.show.output, self.show.color)?;
        let mut after = self.after.clone();
        loop {
            let limit = if self.all { PAGE_ROWS } else { self.limit.clamp(1, PAGE_ROWS) };
            let page = PageQuery { limit: Some(limit), cursor: after.take(), fields: None };
            let listing: api::listing::Listing<Value> = client.fetch(path, &page.of(query)).await?;
            let rows: Vec<DocumentRow> =
                listing.items.into_iter().map(|item| DocumentRow::of(shown(item))).collect();
            printer.documents(&rows, columns).map_err(|error| Problem::output(&error))?;
            after = listing.next;
            if after.is_none() || !self.all {
                break;
            }
        }
        printer.end(after.as_deref()).map_err(|error| Problem::output(&error))
    }
}

/// Prints one document: a member a line for people, or the document.
pub fn show_one(document: &Value, output: &Output) -> Outcome<()> {
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
