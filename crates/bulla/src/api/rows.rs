//! Documents of the API as tables for people, and as they are for programs.

use std::io::Write;

use clap::Args;
use comfy_table::Cell;
use serde_json::Value;

use super::Client;
use crate::exit::{Outcome, Problem};
use crate::listing::Printer;
use crate::output::Format;
use crate::terminal::{Colour, Paint, table, width};

/// Heads of columns, each with the JSON pointer (RFC 6901) of its value.
pub(crate) type Columns = &'static [(&'static str, &'static str)];

/// How to show what the server says.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// How to write it
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Format,
    /// When to colour
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Colour,
}

/// Which part of a listing.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Pages")]
pub(crate) struct Listing {
    /// Rows of this page
    #[arg(long, value_name = "ROWS", default_value_t = 50)]
    limit: usize,
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
const PAGE_ROWS: usize = 500;

impl Listing {
    /// Prints one page of `path`, or all.
    pub(crate) async fn print(
        &self,
        client: &Client,
        path: &str,
        query: &[(&str, String)],
        columns: Columns,
    ) -> Outcome<()> {
        let mut printer = Printer::new(self.show.output, self.show.color)?;
        let mut after = self.after.clone();
        loop {
            let limit = if self.all { PAGE_ROWS } else { self.limit.clamp(1, PAGE_ROWS) };
            let mut query = query.to_vec();
            query.push(("limit", limit.to_string()));
            query.extend(after.take().map(|cursor| ("cursor", cursor)));
            let page = client.get(path, &query).await?;
            let rows: Vec<Document> = items(&page).iter().cloned().map(Document::of).collect();
            printer.documents(&rows, columns).map_err(|error| Problem::output(&error))?;
            after = page.get("next").and_then(Value::as_str).map(str::to_owned);
            if after.is_none() || !self.all {
                break;
            }
        }
        printer.end_at(after.as_deref()).map_err(|error| Problem::output(&error))
    }
}

fn items(page: &Value) -> &[Value] {
    page.get("items").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A document of a listing.
pub(crate) struct Document {
    item: Value,
}

impl Document {
    /// Of an answer that is no listing.
    pub(crate) fn of(item: Value) -> Self {
        Self { item }
    }

    /// The cells of a table or the fields of a CSV record.
    pub(crate) fn fields(&self, columns: Columns) -> Vec<String> {
        columns.iter().map(|(_, pointer)| text(self.item.pointer(pointer).unwrap_or(&Value::Null))).collect()
    }

    /// The document itself.
    pub(crate) fn json(&self) -> &Value {
        &self.item
    }
}

/// A value in a cell: times to the minute, lists joined, objects as `key=value`.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => minute(text).unwrap_or_else(|| text.clone()),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Object(all) => all
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| format!("{key}={}", text_of_member(value)))
            .collect::<Vec<_>>()
            .join(" "),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => number.to_string(),
    }
}

fn text_of_member(value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => value.to_string(),
        other => text(other),
    }
}

/// `2026-11-21T05:00:00Z` as `2026-11-21 05:00`.
fn minute(text: &str) -> Option<String> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(at.strftime("%Y-%m-%d %H:%M").to_string())
}

/// Prints one document: a member a line for people, or the document.
pub(crate) fn show_one(document: &Value, output: &Output) -> Outcome<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_written_for_people() {
        let document = Document {
            item: json!({ "a": { "b": ["x", "y"] }, "at": "2026-11-21T05:06:07Z", "yes": true, "tags": { "k": "v" } }),
        };
        let columns: Columns =
            &[("B", "/a/b"), ("At", "/at"), ("Yes", "/yes"), ("Tags", "/tags"), ("No", "/no")];
        assert_eq!(document.fields(columns), ["x, y", "2026-11-21 05:06", "yes", "k=v", ""]);
    }
}
