//! The effect of a change of sites and nodes on key policies, shown before the change is made.

use std::collections::BTreeMap;

use api::key_policies::RowView;
use api::listing::{Listing, PageQuery};
use api::sites::{KeyNodeQuery, NodeView};
use cli::connection::Client;
use cli::control::POLICIES;
use cli::exit::{Exit, Outcome};
use keyless::places::{Attributes, Formula};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Rows per page: the maximum of the server.
const PAGE_ROWS: u32 = 500;
/// Maximum number of nodes named for a policy that gains or loses nodes.
const NAMED_MAX: usize = 5;

/// All key policies, each with the formula that a node must satisfy.
pub(super) struct Policies(Vec<(String, Formula)>);

/// A node: its name and its own attributes.
pub(super) struct Node {
    name: String,
    own: Attributes,
}

impl Policies {
    /// Reads all policies. Returns `None` if the caller has no permission to read them.
    pub(super) async fn read(client: &Client) -> Outcome<Option<Self>> {
        let rows: Vec<RowView> = match all(client, POLICIES, &()).await {
            Ok(rows) => rows,
            Err(problem) if problem.exit == Exit::Refused => return Ok(None),
            Err(problem) => return Err(problem),
        };
        let policy = |row: RowView| Some((row.name, Formula::parse(&row.formula).ok()?));
        Ok(Some(Self(rows.into_iter().filter_map(policy).collect())))
    }

    /// Returns the names of the policies that a node with these attributes satisfies.
    pub(super) fn policies_satisfied_by(&self, given: &BTreeMap<String, String>) -> Vec<&str> {
        let given = attributes(given);
        let open = self.0.iter().filter(|(_, formula)| formula.satisfied_by(&given));
        open.map(|(name, _)| name.as_str()).collect()
    }

    /// Returns one line for each policy that gains or loses nodes when a site's attributes change: `eu: lost by 2 nodes (a, b)`.
    pub(super) fn moved(
        &self,
        nodes: &[Node],
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
    ) -> Vec<String> {
        let (before, after) = (attributes(before), attributes(after));
        let mut lines = Vec::new();
        for (policy, formula) in &self.0 {
            let holds = |site: &Attributes, node: &Node| {
                site.with(&node.own).is_ok_and(|all| formula.satisfied_by(&all))
            };
            let of = |was: bool| -> Vec<&str> {
                let moved = |node: &&Node| holds(&before, node) == was && holds(&after, node) != was;
                nodes.iter().filter(moved).map(|node| node.name.as_str()).collect()
            };
            for (names, word) in [(of(true), "lost"), (of(false), "gained")] {
                if !names.is_empty() {
                    lines.push(format!("{policy}: {word} by {}", named(&names)));
                }
            }
        }
        lines
    }
}

/// Returns the nodes at a site that are not retired.
pub(super) async fn active_nodes_at(client: &Client, path: &str, site: &str) -> Outcome<Vec<Node>> {
    let query = KeyNodeQuery { site: Some(site.to_owned()), ..KeyNodeQuery::default() };
    let rows: Vec<NodeView> = all(client, path, &query).await?;
    let node = |row: NodeView| Node { own: attributes(&row.own_attributes), name: row.name };
    Ok(rows.into_iter().map(node).collect())
}

/// Fetches all pages of a listing and returns their rows.
async fn all<T: DeserializeOwned>(client: &Client, path: &str, query: &impl Serialize) -> Outcome<Vec<T>> {
    let mut rows = Vec::new();
    let mut page = PageQuery { limit: Some(PAGE_ROWS), ..PageQuery::default() };
    loop {
        let listing: Listing<T> = client.fetch(path, &page.of(query)).await?;
        rows.extend(listing.items);
        if listing.next.is_none() {
            return Ok(rows);
        }
        page.cursor = listing.next;
    }
}

fn attributes(given: &BTreeMap<String, String>) -> Attributes {
    Attributes::of(given.clone()).unwrap_or_default()
}

/// Formats a list of nodes: `2 nodes (a, b)`.
fn named(names: &[&str]) -> String {
    let count = names.len();
    let some = names.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = if count > NAMED_MAX { ", …" } else { "" };
    format!("{count} {} ({some}{more})", if count == 1 { "node" } else { "nodes" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn node(name: &str, own: &[(&str, &str)]) -> Node {
        Node { name: name.to_owned(), own: attributes(&pairs(own)) }
    }

    #[test]
    fn attribute_change_reports_nodes_gained_and_lost_per_policy() {
        let policy = |name: &str, formula: &str| (name.to_owned(), Formula::parse(formula).unwrap());
        let policies = Policies(vec![
            policy("eu", "region: EU"),
            policy("first", "tier: 1"),
            policy("safe", "security: high"),
        ]);
        let nodes = [node("a", &[]), node("b", &[("security", "high")]), node("c", &[("region", "EU")])];
        let (before, after) = (pairs(&[("region", "EU")]), pairs(&[("tier", "1")]));
        let lines = policies.moved(&nodes, &before, &after);
        assert_eq!(lines, ["eu: lost by 2 nodes (a, b)", "first: gained by 3 nodes (a, b, c)"]);
        assert!(policies.moved(&nodes, &before, &before).is_empty());
        assert_eq!(
            policies.policies_satisfied_by(&pairs(&[("region", "EU"), ("security", "high")])),
            ["eu", "safe"]
        );
        assert_eq!(named(&["a"; 7]), "7 nodes (a, a, a, a, a, …)");
    }
}
