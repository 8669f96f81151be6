//! Rows of a response that has no pages.

use serde_json::Value;

use crate::connection::{Columns, DocumentRow, Output};
use crate::exit::{Exit, Outcome, Problem};
use crate::printer::Printer;

/// Prints the rows of a response.
pub(super) fn print(rows: Vec<Value>, columns: Columns, show: &Output) -> Outcome<Exit> {
    let rows: Vec<DocumentRow> = rows.into_iter().map(DocumentRow::of).collect();
    let mut printer = Printer::new(show.output, show.color)?;
    printer.documents(&rows, columns).map_err(|error| Problem::output(&error))?;
    printer.end(None).map_err(|error| Problem::output(&error))?;
    Ok(Exit::Ok)
}
