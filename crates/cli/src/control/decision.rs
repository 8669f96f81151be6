//! What approvals and changes have in common: a plan that is shown, then approved by its SHA-256 or rejected.

use std::io::IsTerminal as _;

use api::approvals::{ApproveBody, DecisionBody};
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;
use x509::Fingerprint;

use crate::connection::{Client, Columns, DocumentRow, Output, document_of, show_one};
use crate::exit::{Outcome, Problem};
use crate::printer::Printer;
use crate::terminal::clean;

/// Characters of a plan's SHA-256 in a listing.
const SHORT_HASH: usize = 12;

/// The value of a plan's field that has none.
const NOT_SET: &str = "not set";

/// Approves the plan with the SHA-256 `plan`. Without one, `ask` shows the plan at a terminal and returns its SHA-256.
pub(super) async fn approve(
    client: &Client,
    place: &str,
    plan: Option<&Fingerprint>,
    note: Option<&str>,
    ask: impl AsyncFnOnce() -> Outcome<String>,
) -> Outcome<()> {
    let plan_sha256 = match plan {
        None if std::io::stdin().is_terminal() => Some(ask().await?),
        given => given.map(ToString::to_string),
    };
    let body = ApproveBody { note: note.map(str::to_owned), plan_sha256 };
    client.submit(Method::POST, &format!("{place}/approve"), &body).await.map(drop)
}

/// Rejects the plan.
pub(super) async fn reject(client: &Client, place: &str, note: Option<&str>) -> Outcome<()> {
    let body = DecisionBody { note: note.map(str::to_owned) };
    client.submit(Method::POST, &format!("{place}/reject"), &body).await.map(drop)
}

/// The document with the first characters of its plan's SHA-256.
pub(super) fn with_short_hash(mut document: Value) -> Value {
    if let Some(Value::String(hash)) = document.get_mut("plan_sha256") {
        hash.truncate(SHORT_HASH);
    }
    document
}

/// Prints the document without its plan, then the rows of the plan as a table.
pub(super) fn show_with_plan<T: Serialize>(
    document: &Value,
    rows: &[T],
    columns: Columns,
    show: &Output,
) -> Outcome<()> {
    let mut head = document.clone();
    if let Value::Object(members) = &mut head {
        members.retain(|name, _| name != "plan" && name != "changes");
    }
    show_one(&head, show)?;
    println!();
    let rows = rows.iter().map(|row| document_of(row).map(DocumentRow::of)).collect::<Outcome<Vec<_>>>()?;
    let mut printer = Printer::new(show.output, show.color)?;
    printer.documents(&rows, columns).map_err(|error| Problem::output(&error))?;
    printer.end(None).map_err(|error| Problem::output(&error))
}

/// The values of a field in a cell. A certificate's names are chosen by strangers.
pub(super) fn values(values: &[String]) -> String {
    if values.is_empty() { NOT_SET.to_owned() } else { clean(&values.join(", ")).into_owned() }
}
