//! Key policies. They determine which nodes can decrypt which keys.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A key policy, as in lists, without its nodes and key pairs.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicy))]
pub struct RowView {
    /// UUID of the policy, used in `/api/v1/key-policies/{policy}`.
    pub id: Uuid,
    /// Name of the policy, unique.
    #[cfg_attr(feature = "schemas", schema(example = "eu"))]
    pub name: String,
    /// Formula that determines which nodes satisfy the policy.
    #[cfg_attr(feature = "schemas", schema(example = "region: EU and not country: FR"))]
    pub formula: String,
    /// Generation of the newest key pair, from 1.
    pub generation: u32,
    /// Actor that created the policy.
    pub created_by: String,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last rotation, or of the creation, RFC 3339.
    pub updated_at: String,
}

/// A key pair of a policy.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicyGeneration))]
pub struct PairView {
    /// Generation of the key pair, from 1.
    pub generation: u32,
    /// Number of nodes that have the private key of the pair.
    pub wrapped: u64,
    /// Number of keys encrypted to this key pair.
    pub keys: u64,
    /// Names of nodes that satisfy the policy but do not have the private key yet, 20 at most.
    pub lagging: Vec<String>,
    /// Public key to which keys are encrypted: X-Wing, 1,216 bytes, base64.
    pub public_key: String,
    /// Creation time, RFC 3339.
    pub created_at: String,
}

/// A key policy with its nodes and key pairs.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicyDetail))]
pub struct DetailView {
    /// The policy, as in listings.
    #[serde(flatten)]
    pub policy: RowView,
    /// Number of nodes that satisfy the policy.
    pub nodes: usize,
    /// Key pairs of the policy, the newest last. New keys are encrypted to the newest pair; all pairs can decrypt.
    pub generations: Vec<PairView>,
}

/// A formula for a key policy.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicyFormula))]
pub struct FormulaBody {
    /// Formula of `name: value` terms with `and`, `or`, `not` and parentheses.
    #[cfg_attr(feature = "schemas", schema(example = "country: JP or not region: EU", max_length = 4096))]
    pub formula: String,
}

/// A key policy to create.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicyBody))]
pub struct PolicyBody {
    /// Name of the policy, unique.
    #[cfg_attr(feature = "schemas", schema(example = "eu", min_length = 1, max_length = 64))]
    pub name: String,
    /// Formula of `name: value` terms with `and`, `or`, `not` and parentheses.
    #[cfg_attr(feature = "schemas", schema(example = "region: EU", max_length = 4096))]
    pub formula: String,
}

/// The nodes that currently satisfy a formula.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicyResolved))]
pub struct ResolvedView {
    /// The formula in canonical form.
    pub formula: String,
    /// Normal form of the formula. Formulas with the same normal form are satisfied by the same nodes.
    pub canonical: String,
    /// Nodes that satisfy the formula.
    pub nodes: Vec<ResolvedNodeView>,
    /// Sites with nodes that satisfy the formula.
    pub sites: Vec<ResolvedSiteView>,
    /// Number of all enrolled nodes.
    pub enrolled: usize,
    /// Values of each attribute among the enrolled nodes.
    pub attributes: BTreeMap<String, Vec<String>>,
}

/// A node that satisfies a formula.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicyNode))]
pub struct ResolvedNodeView {
    /// UUID of the node, used in `/api/v1/key-nodes/{node}`.
    pub id: Uuid,
    /// Name of the node.
    pub name: String,
    /// Name of the site of the node.
    pub site: String,
    /// Attributes of the node. They override attributes of its site with the same name.
    pub attributes: BTreeMap<String, String>,
}

/// A site with nodes that satisfy a formula.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = KeyPolicySite))]
pub struct ResolvedSiteView {
    /// Name of the site.
    pub name: String,
    /// Number of nodes of the site that satisfy the formula.
    pub satisfying: usize,
    /// Number of nodes of the site.
    pub nodes: usize,
}
