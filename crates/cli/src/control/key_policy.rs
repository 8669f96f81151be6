//! Key policies: which nodes of the key service may open which keys.

use api::key_policies::{
    DetailView, FormulaBody, PairView, PolicyBody, ResolvedNodeView, ResolvedView, RowView,
};
use clap::Subcommand;
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;

use super::consent::{Consent, confirm};
use super::{Run, input};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, document_of, print_rows, read_as, show_one};
use crate::exit::{Exit, Outcome, Problem};

/// API path of the key policies.
pub const POLICIES: &str = "/api/v1/key-policies";

/// Commands of `bulla key policy`.
#[derive(Debug, Subcommand)]
pub enum KeyPolicyCommand {
    /// Show which nodes satisfy a formula: "country: JP or not region: EU". The exit code is 1 if no node does
    Check {
        /// Formula: conditions `name: value` with and, or, not and parentheses
        formula: String,
        /// Output options
        #[command(flatten)]
        show: Output,
    },
    /// Create a policy; the nodes that satisfy it are shown first
    Create {
        /// Name of the policy
        name: String,
        /// Formula: conditions `name: value` with and, or, not and parentheses
        formula: String,
        /// Whether the command asks for confirmation
        #[command(flatten)]
        consent: Consent,
        /// Output options
        #[command(flatten)]
        show: Output,
    },
    /// List policies
    List(Listing),
    /// Show a policy: which nodes have its key pairs, and how many keys are sealed to each
    Show {
        /// Name or id of the policy
        name: String,
        /// Output options
        #[command(flatten)]
        show: Output,
    },
    /// Rotate a policy's key pair; its keys are sealed to the new pair gradually
    Rotate {
        /// Name or id of the policy
        name: String,
        /// Output options
        #[command(flatten)]
        show: Output,
    },
    /// Delete a policy to which no key is sealed
    Delete {
        /// Name or id of the policy
        name: String,
        /// Whether the command asks for confirmation
        #[command(flatten)]
        consent: Consent,
    },
}

impl Run for KeyPolicyCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const COLUMNS: Columns = columns!(
            RowView:
            ("Name", name),
            ("Formula", formula),
            ("Generation", generation),
            ("Made", created_at),
            ("Changed", updated_at),
            ("Id", id),
        );
        match self {
            Self::Check { formula, show } => {
                let document = check(client, formula).await?;
                show_resolved(&document, show)?;
                satisfied(&read_as(&document)?)
            }
            Self::Create { name, formula, consent, show } => {
                create(client, name, formula, *consent, show).await
            }
            Self::List(listing) => listing.print(client, POLICIES, &(), COLUMNS).await,
            Self::Show { name, show } => show_policy(&client.get(&path(name), &()).await?, show),
            Self::Rotate { name, show } => {
                let done = client.send(Method::POST, &format!("{}/rotate", path(name)), None).await?;
                show_policy(&done, show)
            }
            Self::Delete { name, consent } => {
                consent.confirm_at_terminal(&format!("Delete the policy {name:?}?"))?;
                client.send(Method::DELETE, &path(name), None).await.map(drop)
            }
        }
    }
}

/// Returns the path of a policy.
pub(super) fn path(name: &str) -> String {
    format!("{POLICIES}/{}", input::segment(name))
}

async fn check(client: &Client, formula: &str) -> Outcome<Value> {
    let formula = FormulaBody { formula: formula.to_owned() };
    client.submit(Method::POST, &format!("{POLICIES}/check"), &formula).await
}

/// Returns an error with exit code 1 if no node satisfies the formula.
fn satisfied(resolved: &ResolvedView) -> Outcome<()> {
    if resolved.nodes.is_empty() {
        let formula = &resolved.formula;
        return Err(Problem::new(Exit::Findings, format_args!("no node satisfies `{formula}`")));
    }
    Ok(())
}

async fn create(client: &Client, name: &str, formula: &str, consent: Consent, show: &Output) -> Outcome<()> {
    if !consent.is_given() {
        let resolved: ResolvedView = read_as(&check(client, formula).await?)?;
        eprintln!("{}", summary_of(&resolved));
        for node in &resolved.nodes {
            eprintln!("  {} at {}", node.name, node.site);
        }
        // If no node satisfies the formula, the server rejects it and reports the existing attributes.
        if !resolved.nodes.is_empty() {
            confirm(&format!("Create the policy {name:?}?"))?;
        }
    }
    let policy = PolicyBody { name: name.to_owned(), formula: formula.to_owned() };
    show_policy(&client.submit(Method::POST, POLICIES, &policy).await?, show)
}

/// Returns one line: the formula in backticks, then a text such as `is satisfied by 2 of 5 nodes, at 1 site`.
fn summary_of(resolved: &ResolvedView) -> String {
    let ResolvedView { formula, nodes, sites, enrolled, .. } = resolved;
    let (nodes, sites) = (nodes.len(), sites.len());
    format!(
        "`{formula}` is satisfied by {nodes} of {enrolled} nodes, at {sites} {}",
        if sites == 1 { "site" } else { "sites" }
    )
}

fn show_resolved(document: &Value, show: &Output) -> Outcome<()> {
    const COLUMNS: Columns =
        columns!(ResolvedNodeView: ("Node", name), ("Site", site), ("Attributes", attributes), ("Id", id));
    if !show.is_table() {
        return show_one(document, show);
    }
    let resolved: ResolvedView = read_as(document)?;
    let rows = resolved.nodes.iter().map(document_of).collect::<Outcome<Vec<_>>>()?;
    print_rows(rows, COLUMNS, show)?;
    eprintln!("{}", summary_of(&resolved));
    if resolved.nodes.is_empty() {
        for (name, values) in &resolved.attributes {
            eprintln!("  existing values of {name}: {}", values.join(", "));
        }
    }
    Ok(())
}

/// Prints a policy. In table output each generation of its key pair is one line, without the public key.
fn show_policy(policy: &Value, show: &Output) -> Outcome<()> {
    /// A policy for table output: each generation of its key pair is a line of text.
    #[derive(Serialize)]
    struct PolicyLines {
        #[serde(flatten)]
        policy: RowView,
        nodes: usize,
        generations: Vec<String>,
    }
    if !show.is_table() {
        return show_one(policy, show);
    }
    let DetailView { policy, nodes, generations } = read_as(policy)?;
    let generations = generations.iter().map(|one| line(one, nodes)).collect();
    show_one(&document_of(&PolicyLines { policy, nodes, generations })?, show)
}

/// Formats a key pair as one line: `2: wrapped for 3 of 4 nodes, 7 keys; missing at fra-1`.
fn line(pair: &PairView, nodes: usize) -> String {
    let PairView { generation: number, wrapped, keys, lagging, .. } = pair;
    let missing =
        if lagging.is_empty() { String::new() } else { format!("; missing at {}", lagging.join(" ")) };
    format!("{number}: wrapped for {wrapped} of {nodes} nodes, {keys} keys{missing}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn formula_without_matching_nodes_exits_with_findings() {
        let resolved = |nodes: serde_json::Value| {
            let document = serde_json::json!({
                "formula": "region: EU", "canonical": "region: EU", "nodes": nodes, "sites": [], "enrolled": 2, "attributes": {}
            });
            serde_json::from_value::<super::ResolvedView>(document).unwrap()
        };
        let none = super::satisfied(&resolved(serde_json::json!([]))).unwrap_err();
        assert_eq!(none.exit, crate::exit::Exit::Findings);
        let node = serde_json::json!({ "id": uuid::Uuid::nil(), "name": "a", "site": "b", "attributes": {} });
        assert!(super::satisfied(&resolved(serde_json::json!([node]))).is_ok());
    }

    use super::*;
    use serde_json::json;

    #[test]
    fn generation_is_summarized_on_one_line() {
        let mut pair = PairView {
            generation: 2,
            wrapped: 3,
            keys: 7,
            lagging: Vec::new(),
            public_key: "AAAA".to_owned(),
            created_at: "2026-11-01T00:00:00Z".to_owned(),
        };
        assert_eq!(line(&pair, 3), "2: wrapped for 3 of 3 nodes, 7 keys");
        pair.lagging.push("fra-1".to_owned());
        assert_eq!(line(&pair, 4), "2: wrapped for 3 of 4 nodes, 7 keys; missing at fra-1");
    }

    #[test]
    fn formula_result_is_summarized_on_one_line() {
        let node = json!({ "id": uuid::Uuid::nil(), "name": "n", "site": "s", "attributes": {} });
        let site = json!({ "name": "s", "satisfying": 2, "nodes": 2 });
        let resolved = json!({ "formula": "a: 1", "canonical": "a: 1", "nodes": [node, node], "sites": [site],
            "enrolled": 5, "attributes": {}, "of a later version": true });
        let resolved = read_as(&resolved).unwrap();
        assert_eq!(summary_of(&resolved), "`a: 1` is satisfied by 2 of 5 nodes, at 1 site");
    }
}
