//! Policies of keys: which nodes of the key service may open which keys.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::consent::confirm;
use super::{Run, input};
use crate::api::{Client, Columns, DocumentRow, Listing, Output, show_one};
use crate::exit::{Outcome, Problem};
use crate::format::Format;
use crate::printer::Printer;

/// The route of policies.
pub const POLICIES: &str = "/api/v1/key-policies";

/// Policies of keys.
#[derive(Debug, Subcommand)]
pub enum KeyPolicyCommand {
    /// Show which nodes satisfy a formula: "country: JP or not region: EU"
    Check {
        /// Conditions `name: value` with and, or, not and parentheses
        formula: String,
        /// How to print the answer
        #[command(flatten)]
        show: Output,
    },
    /// Make one; which nodes satisfy it is shown first
    Create {
        /// Its name
        name: String,
        /// Conditions `name: value` with and, or, not and parentheses
        formula: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        /// How to print the answer
        #[command(flatten)]
        show: Output,
    },
    /// List them
    List(Listing),
    /// Show one: which of its nodes have its pairs, and how many keys are sealed to each
    Show {
        /// Its name or id
        name: String,
        /// How to print the answer
        #[command(flatten)]
        show: Output,
    },
    /// Give one its next pair; its keys are sealed to it by and by
    Rotate {
        /// Its name or id
        name: String,
        /// How to print the answer
        #[command(flatten)]
        show: Output,
    },
    /// Remove one to which no key is sealed
    Delete {
        /// Its name or id
        name: String,
    },
}

impl Run for KeyPolicyCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const COLUMNS: Columns = &[
            ("Name", "/name"),
            ("Formula", "/formula"),
            ("Generation", "/generation"),
            ("Made", "/created_at"),
            ("Changed", "/updated_at"),
            ("Id", "/id"),
        ];
        match self {
            Self::Check { formula, show } => show_resolved(&check(client, formula).await?, show),
            Self::Create { name, formula, yes, show } => create(client, name, formula, *yes, show).await,
            Self::List(listing) => listing.print(client, POLICIES, &[], COLUMNS).await,
            Self::Show { name, show } => show_policy(client.get(&path(name), &[]).await?, show),
            Self::Rotate { name, show } => {
                let done = client.send(Method::POST, &format!("{}/rotate", path(name)), None).await?;
                show_policy(done, show)
            }
            Self::Delete { name } => client.send(Method::DELETE, &path(name), None).await.map(drop),
        }
    }
}

/// Where a policy is.
pub(super) fn path(name: &str) -> String {
    format!("{POLICIES}/{}", input::segment(name))
}

async fn check(client: &Client, formula: &str) -> Outcome<Value> {
    client.send(Method::POST, &format!("{POLICIES}/check"), Some(&json!({ "formula": formula }))).await
}

async fn create(client: &Client, name: &str, formula: &str, yes: bool, show: &Output) -> Outcome<()> {
    if !yes {
        let resolved = check(client, formula).await?;
        eprintln!("{}", told(&resolved));
        for node in resolved["nodes"].as_array().into_iter().flatten() {
            let text = |member: &str| node[member].as_str().unwrap_or_default().to_owned();
            eprintln!("  {} at {}", text("name"), text("site"));
        }
        // Whom nobody satisfies the server refuses, and says which attributes there are.
        if resolved["nodes"].as_array().is_some_and(|nodes| !nodes.is_empty()) {
            confirm(&format!("Make the policy {name:?}?"), false)?;
        }
    }
    let body = json!({ "name": name, "formula": formula });
    show_policy(client.send(Method::POST, POLICIES, Some(&body)).await?, show)
}

/// `region: EU: satisfied by 2 of 5 nodes, at 1 site`
fn told(resolved: &Value) -> String {
    let count = |member: &str| resolved[member].as_array().map_or(0, Vec::len);
    let (nodes, sites) = (count("nodes"), count("sites"));
    let formula = resolved["formula"].as_str().unwrap_or_default();
    format!(
        "`{formula}` is satisfied by {nodes} of {} nodes, at {sites} {}",
        resolved["enrolled"],
        if sites == 1 { "site" } else { "sites" }
    )
}

fn show_resolved(resolved: &Value, show: &Output) -> Outcome<()> {
    const COLUMNS: Columns =
        &[("Node", "/name"), ("Site", "/site"), ("Attributes", "/attributes"), ("Id", "/id")];
    if show.output != Format::Table {
        return show_one(resolved, show);
    }
    let nodes = resolved["nodes"].as_array().cloned().unwrap_or_default();
    let is_empty = nodes.is_empty();
    let rows: Vec<DocumentRow> = nodes.into_iter().map(DocumentRow::of).collect();
    let mut printer = Printer::new(show.output, show.color)?;
    printer.documents(&rows, COLUMNS).map_err(|error| Problem::output(&error))?;
    printer.end(None).map_err(|error| Problem::output(&error))?;
    eprintln!("{}", told(resolved));
    if is_empty {
        for (name, values) in resolved["attributes"].as_object().into_iter().flatten() {
            let values: Vec<&str> =
                values.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            eprintln!("  there is {name}: {}", values.join(", "));
        }
    }
    Ok(())
}

/// For people a generation is a line, without its public key.
fn show_policy(mut policy: Value, show: &Output) -> Outcome<()> {
    if show.output == Format::Table {
        let nodes = policy["nodes"].clone();
        let lines = policy["generations"].as_array().into_iter().flatten().map(|one| line(one, &nodes));
        policy["generations"] = json!(lines.collect::<Vec<_>>());
    }
    show_one(&policy, show)
}

/// `2: wrapped for 3 of 4 nodes, 7 keys; missing at fra-1`
fn line(generation: &Value, nodes: &Value) -> String {
    let (number, wrapped, keys) = (&generation["generation"], &generation["wrapped"], &generation["keys"]);
    let lagging: Vec<&str> =
        generation["lagging"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let missing =
        if lagging.is_empty() { String::new() } else { format!("; missing at {}", lagging.join(" ")) };
    format!("{number}: wrapped for {wrapped} of {nodes} nodes, {keys} keys{missing}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_a_line() {
        let whole = json!({ "generation": 2, "wrapped": 3, "keys": 7, "lagging": [], "public_key": "AAAA" });
        assert_eq!(line(&whole, &json!(3)), "2: wrapped for 3 of 3 nodes, 7 keys");
        let part = json!({ "generation": 2, "wrapped": 3, "keys": 7, "lagging": ["fra-1"] });
        assert_eq!(line(&part, &json!(4)), "2: wrapped for 3 of 4 nodes, 7 keys; missing at fra-1");
    }

    #[test]
    fn what_a_formula_means_is_a_line() {
        let resolved = json!({ "formula": "a: 1", "nodes": [{}, {}], "sites": [{}], "enrolled": 5 });
        assert_eq!(told(&resolved), "`a: 1` is satisfied by 2 of 5 nodes, at 1 site");
    }
}
