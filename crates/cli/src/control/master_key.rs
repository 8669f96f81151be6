//! The master key, which seals keys and secrets at rest.

use std::io::IsTerminal;
use std::time::Duration;

use api::master_key::{MasterKeyView, MasterKeysView, RotatedView, RotatingView};
use clap::Subcommand;
use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::Run;
use crate::columns;
use crate::connection::{Client, Columns, Output, document_of, print_rows, read_as, show_one};
use crate::exit::{Exit, Outcome, Problem};

const KEYS: &str = "/api/v1/master-key";

/// Interval of progress requests during a rotation. It is long, because each response counts every sealed value.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Commands of `bulla key master`.
#[derive(Debug, Subcommand)]
pub enum MasterKeyCommand {
    /// Show the master keys and how many values are sealed under each
    Status {
        #[command(flatten)]
        show: Output,
    },
    /// Re-encrypt everything under the server's current master key; then the older master keys can be removed
    Rotate {
        #[command(flatten)]
        show: Output,
    },
}

impl Run for MasterKeyCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        match self {
            Self::Status { show } => status(client, show).await,
            Self::Rotate { show } => rotate(client, show).await,
        }
    }
}

/// A master key as a row of a table.
#[derive(Serialize)]
struct KeyRow {
    id: String,
    current: bool,
    configured: bool,
    values: u64,
    of: Vec<String>,
}

const STATUS: Columns = columns!(
    KeyRow:
    ("Master key", id),
    ("Current", current),
    ("Configured", configured),
    ("Values", values),
    ("Of", of),
);

/// A rotation as it is printed: each column with sealed values is a line of text.
#[derive(Serialize)]
struct RotationLines<'a> {
    master: &'a str,
    rewrapped: u64,
    failed: &'a [String],
    remaining: u64,
    columns: Vec<String>,
}

async fn status(client: &Client, show: &Output) -> Outcome<()> {
    let found = client.get(KEYS, &()).await?;
    if !show.is_table() {
        return show_one(&found, show);
    }
    let MasterKeysView { keys, .. } = read_as(&found)?;
    let rows = keys.into_iter().map(|key| document_of(&row(key))).collect::<Outcome<Vec<_>>>()?;
    print_rows(rows, STATUS, show)
}

fn row(key: MasterKeyView) -> KeyRow {
    let MasterKeyView { id, current, configured, values, columns } = key;
    let of = columns.iter().map(|column| (column.column.as_str(), column.values));
    KeyRow { id, current, configured, values, of: counts(of) }
}

/// Returns the columns with values, each with its count: `credential_versions.sealed 12`.
fn counts<'a>(columns: impl Iterator<Item = (&'a str, u64)>) -> Vec<String> {
    columns.filter(|(_, values)| *values > 0).map(|(column, values)| format!("{column} {values}")).collect()
}

/// Waits until no values remain or there is no progress; the final report has the reason.
async fn until_ended(client: &Client) -> Outcome<()> {
    let mut before = None;
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let MasterKeysView { remaining, rotating, .. } = client.fetch(KEYS, &()).await?;
        if std::io::stderr().is_terminal() {
            eprintln!("{remaining} values are encrypted with old master keys");
        }
        // Behind a load balancer another node may respond. That node is not rotating, but the count decreases.
        let is_stuck = before.replace(remaining) == Some(remaining) && !rotating;
        if remaining == 0 || is_stuck {
            return Ok(());
        }
    }
}

async fn rotate(client: &Client, show: &Output) -> Outcome<()> {
    let path = format!("{KEYS}/rotate");
    let done = loop {
        let answer = client.send(Method::POST, &path, None).await?;
        // The response is the final result, unless the rotation still runs.
        if RotatingView::deserialize(&answer).is_err() {
            break answer;
        }
        until_ended(client).await?;
    };
    let RotatedView { master, rewrapped, failed, remaining, columns } = read_as(&done)?;
    let columns = counts(columns.iter().map(|column| (column.column.as_str(), column.rewrapped)));
    let lines = RotationLines { master: &master, rewrapped, failed: &failed, remaining, columns };
    let shown = if show.is_table() { document_of(&lines)? } else { done };
    show_one(&shown, show)?;
    match remaining {
        0 => Ok(()),
        _ => Err(Problem::new(Exit::Findings, "some values are still encrypted with an old master key").hint(
            "leave it in authority.old_master_keys (or old_master_key_files); `failed` lists values that cannot be \
             decrypted, then try again; `bulla key master status` shows the counts",
        )),
    }
}
