//! Which nodes satisfy a formula.

use std::collections::{BTreeMap, BTreeSet};

use keyless::places::{Attributes, Formula};
use store::PAGE_ROWS_MAX;
use uuid::Uuid;

use super::error::PolicyError;
use super::registry::KeyPolicies;
use crate::tables;
use crate::tables::PolicyNode;

/// Values of one attribute that a message names.
const VALUES_NAMED_MAX: usize = 20;

/// An attribute that there is, and all its values.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its values, sorted.
    pub values: Vec<String>,
}

/// A node that satisfies a formula.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResolvedNode {
    /// Which.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// The name of its site.
    pub site: String,
    /// Its site's attributes and its own.
    pub attributes: Attributes,
}

/// A site at which nodes satisfy a formula.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ResolvedSite {
    /// Its name.
    pub name: String,
    /// How many of its nodes do.
    pub satisfying: usize,
    /// How many nodes it has.
    pub nodes: usize,
}

/// What a formula means here and now.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The formula in canonical form.
    pub formula: Formula,
    /// Its normal form.
    pub canonical: Formula,
    /// Sites with nodes that satisfy it, by name.
    pub sites: Vec<ResolvedSite>,
    /// Nodes that satisfy it, by site and name.
    pub nodes: Vec<ResolvedNode>,
    /// Nodes that are enrolled in all.
    pub enrolled: usize,
    /// What attributes enrolled nodes have.
    pub there_are: Vec<Attribute>,
}

impl Resolved {
    /// The error if no node satisfies the policy.
    pub(super) fn nobody(&self) -> PolicyError {
        PolicyError::Nobody { formula: self.formula.to_string(), there_are: tell(&self.there_are) }
    }
}

impl KeyPolicies {
    /// Who satisfies a formula. Nothing is changed.
    ///
    /// # Errors
    /// [`PolicyError::Formula`]; those of the database.
    #[crate::boxed]
    pub async fn check(&self, formula: &str) -> Result<Resolved, PolicyError> {
        let formula = Formula::parse(formula)?;
        Ok(resolve(formula, &self.placed_nodes().await?))
    }

    /// All nodes that are not retired, by identity.
    pub(super) async fn placed_nodes(&self) -> Result<Vec<PolicyNode>, PolicyError> {
        let (mut all, mut after) = (Vec::new(), Uuid::nil());
        loop {
            let page = tables::Places::of(self.store()).placed_nodes(after, PAGE_ROWS_MAX).await?;
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
    let there_are = values.into_iter().map(|(name, values)| {
        let values = values.into_iter().collect();
        Attribute { name, values }
    });
    Resolved {
        canonical: formula.canonical(),
        sites: sites.into_values().filter(|site| site.satisfying > 0).collect(),
        nodes,
        enrolled: placed.len(),
        there_are: there_are.collect(),
        formula,
    }
}

/// A node's attributes as policies see them: none where they cannot be read, which satisfies nothing.
pub(super) fn attributes_of(node: &PolicyNode) -> Attributes {
    let read = |json: &str| serde_json::from_str::<Attributes>(json).ok();
    let both = read(&node.site_attributes).zip(read(&node.attributes));
    both.and_then(|(site, own)| site.with(&own).ok()).unwrap_or_default()
}

/// `there are country: DE, FR; region: EU`
fn tell(there_are: &[Attribute]) -> String {
    if there_are.is_empty() {
        return "no node is enrolled, or none has attributes: give its site some, and let it join".to_owned();
    }
    let one = |attribute: &Attribute| {
        let named: Vec<&str> = attribute.values.iter().take(VALUES_NAMED_MAX).map(String::as_str).collect();
        let more = if attribute.values.len() > VALUES_NAMED_MAX { ", …" } else { "" };
        format!("{}: {}{more}", attribute.name, named.join(", "))
    };
    format!("there are {}", there_are.iter().map(one).collect::<Vec<_>>().join("; "))
}
