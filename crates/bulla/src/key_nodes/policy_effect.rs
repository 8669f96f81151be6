//! The effect of a change of sites and nodes on key policies, shown before the change is made.

use cli::api::Client;
use cli::control::POLICIES;
use cli::exit::{Exit, Outcome};
use keyless::places::{Attributes, Formula};
use serde_json::Value;

/// Rows of a page: as many as the server gives.
const PAGE_ROWS: usize = 500;
/// Nodes that are named where a policy gains or loses some.
const NAMED_MAX: usize = 5;

/// All policies, and who satisfies each.
pub(super) struct Policies(Vec<(String, Formula)>);

/// A node: its name, and what is so of it alone.
pub(super) struct Node {
    name: String,
    own: Attributes,
}

impl Policies {
    /// `None` where the caller may not know them.
    pub(super) async fn read(client: &Client) -> Outcome<Option<Self>> {
        let rows = match all(client, POLICIES, &[]).await {
            Ok(rows) => rows,
            Err(problem) if problem.exit == Exit::Refused => return Ok(None),
            Err(problem) => return Err(problem),
        };
        let policy = |row: &Value| {
            Some((row["name"].as_str()?.to_owned(), Formula::parse(row["formula"].as_str()?).ok()?))
        };
        Ok(Some(Self(rows.iter().filter_map(policy).collect())))
    }

    /// Names of those that a node with these attributes satisfies.
    pub(super) fn open_to(&self, given: &Value) -> Vec<&str> {
        let given = attributes(given);
        let open = self.0.iter().filter(|(_, formula)| formula.satisfied_by(&given));
        open.map(|(name, _)| name.as_str()).collect()
    }

    /// A line for each policy that other nodes satisfy when a site's attributes change: `eu: lost by 2 nodes (a, b)`.
    pub(super) fn moved(&self, nodes: &[Node], before: &Value, after: &Value) -> Vec<String> {
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

/// The nodes at a site that are not retired.
pub(super) async fn nodes_of(client: &Client, path: &str, site: &str) -> Outcome<Vec<Node>> {
    let rows = all(client, path, &[("site", site.to_owned())]).await?;
    let node = |row: &Value| Node {
        name: row["name"].as_str().unwrap_or_default().to_owned(),
        own: attributes(&row["own_attributes"]),
    };
    Ok(rows.iter().map(node).collect())
}

/// Every row of a listing.
async fn all(client: &Client, path: &str, query: &[(&str, String)]) -> Outcome<Vec<Value>> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let mut query = query.to_vec();
        query.push(("limit", PAGE_ROWS.to_string()));
        query.extend(after.take().map(|cursor| ("cursor", cursor)));
        let page = client.get(path, &query).await?;
        rows.extend(page["items"].as_array().cloned().unwrap_or_default());
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            return Ok(rows);
        }
    }
}

fn attributes(given: &Value) -> Attributes {
    let pairs = given.as_object().into_iter().flatten();
    let pairs = pairs.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    Attributes::of(pairs).unwrap_or_default()
}

/// `2 nodes (a, b)`
fn named(names: &[&str]) -> String {
    let count = names.len();
    let some = names.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = if count > NAMED_MAX { ", …" } else { "" };
    format!("{count} {} ({some}{more})", if count == 1 { "node" } else { "nodes" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(name: &str, own: &Value) -> Node {
        Node { name: name.to_owned(), own: attributes(own) }
    }

    #[test]
    fn who_gains_and_loses_is_told_by_policy() {
        let policy = |name: &str, formula: &str| (name.to_owned(), Formula::parse(formula).unwrap());
        let policies = Policies(vec![
            policy("eu", "region: EU"),
            policy("first", "tier: 1"),
            policy("safe", "security: high"),
        ]);
        let nodes = [
            node("a", &json!({})),
            node("b", &json!({ "security": "high" })),
            node("c", &json!({ "region": "EU" })),
        ];
        let (before, after) = (json!({ "region": "EU" }), json!({ "tier": "1" }));
        let lines = policies.moved(&nodes, &before, &after);
        assert_eq!(lines, ["eu: lost by 2 nodes (a, b)", "first: gained by 3 nodes (a, b, c)"]);
        assert!(policies.moved(&nodes, &before, &before).is_empty());
        assert_eq!(policies.open_to(&json!({ "region": "EU", "security": "high" })), ["eu", "safe"]);
        assert_eq!(named(&["a"; 7]), "7 nodes (a, a, a, a, a, …)");
    }
}
