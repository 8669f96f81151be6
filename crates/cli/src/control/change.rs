//! Changes of protected objects that wait for approval. Each shows the object before and after.

use api::approvals::PlanChangeView;
use api::changes::{ChangeQuery, ChangeView};
use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;

use super::Run;
use super::consent::confirm;
use super::decision::{self, ApproveArgs, RejectArgs, ShowArgs, show_with_plan, values, with_short_hash};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, read_as, show_one};
use crate::exit::Outcome;
use crate::format::Format;
use crate::terminal::{Colour, clean};

const PATH: &str = "/api/v1/changes";

/// Commands for changes that wait for approval.
#[derive(Debug, Subcommand)]
pub enum ChangeCommand {
    /// List changes that wait for approval, newest first
    List {
        /// State: open, approved, applied, rejected or void
        #[arg(long, value_name = "STATE", default_value = "open")]
        state: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show a change: the values that differ, before and after, and its approvers
    Show(ShowArgs),
    /// Approve a change: it is applied exactly as shown once enough people have approved. At a terminal, shows the change and asks
    /// for confirmation
    Approve(ApproveArgs),
    /// Reject a change: it is not applied
    Reject(RejectArgs),
}

impl Run for ChangeCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        match self {
            Self::List { state, listing } => list(client, state, listing).await,
            Self::Show(ShowArgs { id, show }) => {
                show_change(&client.get(&decision::object(PATH, id), &()).await?, show)
            }
            Self::Approve(args) => {
                args.run(client, PATH, async |path| confirm_plan(client, path).await).await
            }
            Self::Reject(args) => args.run(client, PATH).await,
        }
    }
}

async fn list(client: &Client, state: &str, listing: &Listing) -> Outcome<()> {
    const TABLE: Columns = columns!(
        ChangeView:
        ("Change", action),
        ("Object", object),
        ("Profiles", profiles),
        ("Asked by", requested_by),
        ("Ends", expires_at),
        ("State", state),
        ("Approvals", approvals_given),
        ("Of", approvals_needed),
        ("Plan", plan_sha256),
        ("Id", id),
    );
    let query = ChangeQuery { state: Some(state.to_owned()) };
    match listing.show.output {
        Format::Table if listing.show.is_table() => {
            listing.print_mapped(client, PATH, &query, TABLE, with_short_hash).await
        }
        _ => listing.print(client, PATH, &query, TABLE).await,
    }
}

/// Shows the change at the terminal and asks for confirmation. Returns the SHA-256 of the shown plan.
async fn confirm_plan(client: &Client, path: &str) -> Outcome<String> {
    let document = client.get(path, &()).await?;
    let change: ChangeView = read_as(&document)?;
    show_change(&document, &Output { output: Format::Table, color: Colour::Auto, query: None })?;
    confirm("Approve this change?")?;
    Ok(change.plan_sha256)
}

/// Prints a change. In table output the differing values are a separate table.
fn show_change(document: &Value, show: &Output) -> Outcome<()> {
    const CHANGED: Columns = columns!(ChangedRow: ("Value", name), ("Before", before), ("After", after));
    if !show.is_table() {
        return show_one(document, show);
    }
    let change: ChangeView = read_as(document)?;
    show_with_plan(document, &changed_rows(&change.changes), CHANGED, show)
}

/// A differing value as a row of the table.
#[derive(Debug, Eq, PartialEq, Serialize)]
struct ChangedRow {
    name: String,
    before: String,
    after: String,
}

fn changed_rows(changes: &[PlanChangeView]) -> Vec<ChangedRow> {
    let row = |change: &PlanChangeView| ChangedRow {
        name: clean(&change.name).into_owned(),
        before: values(&change.before),
        after: values(&change.after),
    };
    changes.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changed_values_are_shown_before_and_after() {
        let change = |name: &str, before: &[&str], after: &[&str]| PlanChangeView {
            name: name.to_owned(),
            before: before.iter().map(ToString::to_string).collect(),
            after: after.iter().map(ToString::to_string).collect(),
        };
        let rows = changed_rows(&[
            change("/requires_approval", &["true"], &["false"]),
            change("/names/dns_allowed/1", &[], &["\"\u{1b}[2J.example\""]),
        ]);
        let row = |name: &str, before: &str, after: &str| ChangedRow {
            name: name.to_owned(),
            before: before.to_owned(),
            after: after.to_owned(),
        };
        assert_eq!(
            rows,
            [
                row("/requires_approval", "true", "false"),
                row("/names/dns_allowed/1", "not set", "\"\u{fffd}[2J.example\""),
            ]
        );
        assert_eq!(
            with_short_hash(json!({ "plan_sha256": "0123456789abcdef" }))["plan_sha256"],
            "0123456789ab"
        );
    }
}
