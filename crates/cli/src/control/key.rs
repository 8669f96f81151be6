//! What seals keys at rest, and keys that are sealed to policies.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::Run;
use super::sealed_key::{self, SealArgs};
use crate::api::{Client, Columns, DocumentRow, Listing, Output, show_one};
use crate::exit::{Exit, Outcome, Problem};
use crate::format::Format;
use crate::printer::Printer;

const KEYS: &str = "/api/v1/master-key";

/// How often it is asked how far a rotation has come: each answer counts every sealed value.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The master key, and sealed keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Show the master keys and how many values are sealed under each
    Status {
        #[command(flatten)]
        show: Output,
    },
    /// Wrap everything sealed anew, under the server's current master key; afterwards older ones can go
    Rotate {
        #[command(flatten)]
        show: Output,
    },
    /// Seal a private key to a policy, here on this machine; the server never sees it
    Seal(SealArgs),
    /// List the keys that are sealed to policies
    Sealed(Listing),
    /// Withdraw a sealed key: nodes sign with it no more
    Withdraw {
        /// SHA-256 of its SubjectPublicKeyInfo, as `bulla key sealed` lists it
        #[arg(value_name = "SPKI-SHA256")]
        key: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

impl Run for KeyCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        match self {
            Self::Status { show } => status(client, show).await,
            Self::Rotate { show } => rotate(client, show).await,
            Self::Seal(seal) => seal.run(client).await,
            Self::Sealed(listing) => sealed_key::list(client, listing).await,
            Self::Withdraw { key, yes } => sealed_key::withdraw(client, key, *yes).await,
        }
    }
}

const STATUS: Columns = &[
    ("Master key", "/id"),
    ("Current", "/current"),
    ("Configured", "/configured"),
    ("Values", "/values"),
    ("Of", "/of"),
];

async fn status(client: &Client, show: &Output) -> Outcome<()> {
    let found = client.get(KEYS, &[]).await?;
    if show.output != Format::Table {
        return show_one(&found, show);
    }
    let keys = found.get("keys").and_then(Value::as_array).cloned().unwrap_or_default();
    let rows: Vec<DocumentRow> = keys.into_iter().map(by_column).map(DocumentRow::of).collect();
    let mut printer = Printer::new(show.output, show.color)?;
    printer.documents(&rows, STATUS).map_err(|error| Problem::output(&error))?;
    printer.end(None).map_err(|error| Problem::output(&error))
}

/// The columns of a key as one line: `credential_versions.sealed 12, keys.sealed 3`.
fn by_column(mut key: Value) -> Value {
    key["of"] = in_line(&key, "values");
    key
}

/// The columns of a document that have any of what is counted, on one line.
fn in_line(document: &Value, count: &str) -> Value {
    let columns = document.get("columns").and_then(Value::as_array);
    let line = |column: &Value| {
        let many = column.get(count)?.as_u64().filter(|many| *many > 0)?;
        Some(format!("{} {many}", column.get("column")?.as_str()?))
    };
    json!(columns.into_iter().flatten().filter_map(line).collect::<Vec<_>>())
}

/// Until nothing is left, or nothing happens any more: then the report says why.
async fn until_ended(client: &Client) -> Outcome<()> {
    let mut before = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let found = client.get(KEYS, &[]).await?;
        let remaining = found.get("remaining").and_then(Value::as_u64);
        if std::io::stderr().is_terminal() {
            eprintln!("{} values are under older master keys", found["remaining"]);
        }
        // Behind a balancer another node may answer: it does not rotate, and the count goes down.
        let stands = before.replace(remaining) == Some(remaining) && found["rotating"] != true;
        if remaining == Some(0) || stands {
            return Ok(());
        }
    }
}

async fn rotate(client: &Client, show: &Output) -> Outcome<()> {
    let path = format!("{KEYS}/rotate");
    let done = loop {
        let answer = client.send(Method::POST, &path, None).await?;
        // Ended, or it goes on there beside us.
        if answer.get("rotating").is_none() {
            break answer;
        }
        until_ended(client).await?;
    };
    let mut shown = done.clone();
    if show.output == Format::Table {
        shown["columns"] = in_line(&done, "rewrapped");
    }
    show_one(&shown, show)?;
    match done.get("remaining").and_then(Value::as_u64) {
        Some(0) => Ok(()),
        _ => Err(Problem::new(Exit::Findings, "some values are still under another master key").hint(
            "keep it in authority.old_master_keys (or old_master_key_files); `failed` says what does not open, then \
             try again; `bulla key status` counts",
        )),
    }
}
