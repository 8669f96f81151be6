//! Evaluation of formulas: which nodes satisfy them.

use std::collections::{BTreeMap, BTreeSet};

use keyless::places::{Attributes, Formula};
use store::PAGE_ROWS_MAX;
use uuid::Uuid;

use super::error::PolicyError;
use super::registry::KeyPolicies;
use crate::tables;
use crate::tables::PolicyNode;

/// Maximum number of values that an error message lists for one attribute.
const VALUES_NAMED_MAX: usize = 20;

/// An attribute in use, with all its values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Attribute {
    /// Name of the attribute.
    pub name: String,
    /// Values, sorted.
    pub values: Vec<String>,
}

/// A node that satisfies a formula.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResolvedNode {
    /// UUID that the control plane assigned to the node.
    pub id: Uuid,
    /// Unique name.
    pub name: String,
    /// Name of its site.
    pub site: String,
    /// Attributes of the node, including its site's.
    pub attributes: Attributes,
}

/// A site with nodes that satisfy a formula.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResolvedSite {
    /// Unique name.
    pub name: String,
    /// Number of the site's nodes that satisfy the formula.
    pub satisfying: usize,
    /// Number of the site's nodes.
    pub nodes: usize,
}

/// Result of evaluating a formula over the current nodes.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The formula as written.
    pub formula: Formula,
    /// The formula in canonical form.
    pub canonical: Formula,
    /// Sites with satisfying nodes, ordered by name.
    pub sites: Vec<ResolvedSite>,
    /// Satisfying nodes, ordered by site and name.
    pub nodes: Vec<ResolvedNode>,
    /// Number of all enrolled nodes.
    pub enrolled: usize,
    /// Attributes of the enrolled nodes.
    pub available_attributes: Vec<Attribute>,
}

impl Resolved {
    /// Returns the error for a formula that no node satisfies.
    pub(super) fn no_node_error(&self) -> PolicyError {
        PolicyError::Nobody {
            formula: self.formula.to_string(),
            available_attributes: format_attributes(&self.available_attributes),
        }
    }
}

impl KeyPolicies {
    /// Evaluates a formula over the current nodes, without storing anything.
    ///
    /// # Errors
    /// [`PolicyError::Formula`]; database errors.
    #[crate::boxed]
    pub async fn check(&self, formula: &str) -> Result<Resolved, PolicyError> {
        let formula = Formula::parse(formula)?;
        Ok(resolve(formula, &self.placed_nodes().await?))
    }

    /// Returns all nodes that are not retired, ordered by id.
    pub(super) async fn placed_nodes(&self) -> Result<Vec<PolicyNode>, PolicyError> {
        let (mut all, mut after) = (Vec::new(), Uuid::nil());
        loop {
            let page = tables::SiteTables::of(self.store()).placed_nodes(after, PAGE_ROWS_MAX).await?;
            let Some(last) = page.last() else { return Ok(all) };
            after = last.id;
            all.extend(page);
        }
    }
}

fn resolve(formula: Formula, placed: &[PolicyNode]) -> Resolved {
    let mut nodes = Vec::new();
    let mut sites: BTreeMap<&str, ResolvedSite> = BTreeMap::new();
    let mut values: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in placed {
        let attributes = attributes_of(node);
        for (name, value) in attributes.iter() {
            values.entry(name.to_owned()).or_default().insert(value.to_owned());
        }
        let name = node.site_name.clone();
        let site = sites.entry(&node.site_name);
        let site = site.or_insert(ResolvedSite { name, satisfying: 0, nodes: 0 });
        site.nodes += 1;
        if formula.satisfied_by(&attributes) {
            site.satisfying += 1;
            let (name, site) = (node.name.clone(), node.site_name.clone());
            nodes.push(ResolvedNode { id: node.id, name, site, attributes });
        }
    }
    nodes.sort_by(|one, other| (&one.site, &one.name).cmp(&(&other.site, &other.name)));
    let available_attributes = values.into_iter().map(|(name, values)| {
        let values = values.into_iter().collect();
        Attribute { name, values }
    });
    Resolved {
        canonical: formula.canonical(),
        sites: sites.into_values().filter(|site| site.satisfying > 0).collect(),
        nodes,
        enrolled: placed.len(),
        available_attributes: available_attributes.collect(),
        formula,
    }
}

/// Returns a node's attributes for policies. Returns an empty set if they are malformed; an empty set satisfies no formula.
pub(super) fn attributes_of(node: &PolicyNode) -> Attributes {
    let read = |json: &str| serde_json::from_str::<Attributes>(json).ok();
    let both = read(&node.site_attributes).zip(read(&node.attributes));
    both.and_then(|(site, own)| site.with(&own).ok()).unwrap_or_default()
}

/// Formats attributes: `the nodes have country: DE, FR; region: EU`.
fn format_attributes(available_attributes: &[Attribute]) -> String {
    if available_attributes.is_empty() {
        return "no node is enrolled, or no node has attributes: add attributes to a site, and enrol a node there".to_owned();
    }
    let one = |attribute: &Attribute| {
        let named: Vec<&str> = attribute.values.iter().take(VALUES_NAMED_MAX).map(String::as_str).collect();
        let more = if attribute.values.len() > VALUES_NAMED_MAX { ", …" } else { "" };
        format!("{}: {}{more}", attribute.name, named.join(", "))
    };
    format!("the nodes have {}", available_attributes.iter().map(one).collect::<Vec<_>>().join("; "))
}
