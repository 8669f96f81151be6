//! Key policies: which nodes may open which keys.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A policy of keys.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicy))]
pub struct RowView {
    /// Its identity.
    pub id: Uuid,
    /// Its name, unique.
    #[cfg_attr(feature = "schemas", schema(example = "eu"))]
    pub name: String,
    /// The formula: which nodes satisfy the policy.
    #[cfg_attr(feature = "schemas", schema(example = "region: EU and not country: FR"))]
    pub formula: String,
    /// Its newest pair, from 1.
    pub generation: u32,
    /// Actor that created it.
    pub created_by: String,
    /// Creation time.
    pub created_at: String,
    /// When it was last rotated, or made.
    pub updated_at: String,
}

/// A pair of a policy.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicyGeneration))]
pub struct PairView {
    /// Which, from 1.
    pub generation: u32,
    /// Nodes that hold the key of the policy.
    pub wrapped: u64,
    /// Keys sealed to it.
    pub keys: u64,
    /// Names of nodes that should have it and have not yet, 20 at most.
    pub lagging: Vec<String>,
    /// What keys are sealed to: X-Wing, 1,216 bytes, base64.
    pub public_key: String,
    /// Creation time.
    pub created_at: String,
}

/// A policy of keys, and what became of it.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicyDetail))]
pub struct DetailView {
    /// The policy.
    #[serde(flatten)]
    pub policy: RowView,
    /// How many nodes satisfy it.
    pub nodes: usize,
    /// Its pairs, the newest last: it seals, all of them open.
    pub generations: Vec<PairView>,
}

/// A formula.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicyFormula))]
pub struct FormulaBody {
    /// `name: value`, `and`, `or`, `not`, parentheses.
    #[cfg_attr(feature = "schemas", schema(example = "country: JP or not region: EU", max_length = 4096))]
    pub formula: String,
}

/// A policy to make.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicyBody))]
pub struct PolicyBody {
    /// Its name, unique.
    #[cfg_attr(feature = "schemas", schema(example = "eu", min_length = 1, max_length = 64))]
    pub name: String,
    /// `name: value`, `and`, `or`, `not`, parentheses.
    #[cfg_attr(feature = "schemas", schema(example = "region: EU", max_length = 4096))]
    pub formula: String,
}

/// What a formula means here and now.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicyResolved))]
pub struct ResolvedView {
    /// The formula in canonical form.
    pub formula: String,
    /// Its normal form: two formulas with the same one are satisfied by the same nodes.
    pub canonical: String,
    /// Nodes that satisfy it.
    pub nodes: Vec<ResolvedNodeView>,
    /// Sites with such nodes.
    pub sites: Vec<ResolvedSiteView>,
    /// Nodes that are enrolled in all.
    pub enrolled: usize,
    /// The values of each attribute that enrolled nodes have.
    pub attributes: BTreeMap<String, Vec<String>>,
}

/// A node that satisfies a formula.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicyNode))]
pub struct ResolvedNodeView {
    /// Its identity.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its site's name.
    pub site: String,
    /// Its site's attributes, and its own over them.
    pub attributes: BTreeMap<String, String>,
}

/// A site with nodes that satisfy a formula.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicySite))]
pub struct ResolvedSiteView {
    /// Its name.
    pub name: String,
    /// How many of its nodes do.
    pub satisfying: usize,
    /// How many nodes it has.
    pub nodes: usize,
}
