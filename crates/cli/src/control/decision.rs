//! Common parts of approvals and changes: a plan that is shown, then approved by its SHA-256 or rejected.

use std::io::IsTerminal as _;

use api::approvals::{ApproveBody, DecisionBody};
use clap::Args;
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;
use x509::Fingerprint;

use super::input;
use crate::connection::{Client, Columns, Output, document_of, print_rows, show_one};
use crate::exit::Outcome;
use crate::terminal::clean;

/// Number of characters shown of a plan's SHA-256.
const SHORT_HASH: usize = 12;

/// Text for a plan's field without a value.
const NOT_SET: &str = "not set";

/// Arguments of `bulla approval show` and `bulla change show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Id of the approval or change
    pub(super) id: String,
    #[command(flatten)]
    pub(super) show: Output,
}

/// Arguments of `bulla approval approve` and `bulla change approve`.
#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// Id of the approval or change
    id: String,
    /// The SHA-256 of the plan to approve, as `show` prints it. The server refuses any other plan
    #[arg(long, value_name = "SHA256")]
    plan: Option<Fingerprint>,
    /// Reason
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl ApproveArgs {
    /// Approves the plan by its SHA-256. Without `--plan`, `confirm` shows the plan at this path at a terminal and returns its SHA-256.
    pub(super) async fn run(
        &self,
        client: &Client,
        path: &str,
        confirm: impl AsyncFnOnce(&str) -> Outcome<String>,
    ) -> Outcome<()> {
        let path = object(path, &self.id);
        let plan_sha256 = match &self.plan {
            None if std::io::stdin().is_terminal() => Some(confirm(&path).await?),
            given => given.as_ref().map(ToString::to_string),
        };
        let body = ApproveBody { note: self.note.clone(), plan_sha256, security_key: None };
        client.submit(Method::POST, &format!("{path}/approve"), &body).await.map(drop)
    }
}

/// Arguments of `bulla approval reject` and `bulla change reject`.
#[derive(Debug, Args)]
pub struct RejectArgs {
    /// Id of the approval or change
    id: String,
    /// Reason
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl RejectArgs {
    /// Rejects the plan.
    pub(super) async fn run(&self, client: &Client, path: &str) -> Outcome<()> {
        let body = DecisionBody { note: self.note.clone() };
        client.submit(Method::POST, &format!("{}/reject", object(path, &self.id)), &body).await.map(drop)
    }
}

/// Returns the path of one object below `path`.
pub(super) fn object(path: &str, id: &str) -> String {
    format!("{path}/{}", input::segment(id))
}

/// Returns the document with the first characters of its plan's SHA-256.
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
    print_rows(rows.iter().map(document_of).collect::<Outcome<Vec<_>>>()?, columns, show)
}

/// Joins the values of a field for a cell, without control characters: names in certificates are untrusted.
pub(super) fn values(values: &[String]) -> String {
    if values.is_empty() { NOT_SET.to_owned() } else { clean(&values.join(", ")).into_owned() }
}
