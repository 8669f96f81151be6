//! Ownership rules for what scans find.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Conditions; all that are given must hold, and none given holds everywhere.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schemas", schema(as = OwnershipConditions))]
pub struct WhenBody {
    /// What the host or the server name is like; `*` stands for any run of characters, dots included.
    #[cfg_attr(feature = "schemas", schema(example = "*.pay.example", max_length = 253))]
    pub host: Option<String>,
    /// What one of the certificate's first 256 subject alternative names is like.
    #[cfg_attr(feature = "schemas", schema(max_length = 253))]
    pub name: Option<String>,
    /// The network that the address is in, or the address.
    #[cfg_attr(feature = "schemas", schema(example = "10.20.0.0/16"))]
    pub network: Option<String>,
    /// What the protocol (`tls`, `smtp`, `aws-acm`) or the group of the watch that looks there is like.
    #[cfg_attr(feature = "schemas", schema(example = "aws-*", max_length = 253))]
    pub source: Option<String>,
    /// What the issuer's name holds, in any case.
    #[cfg_attr(feature = "schemas", schema(max_length = 256))]
    pub issuer: Option<String>,
    /// A tag that a cloud or cluster gives to the certificate: its key alone, or `KEY=PATTERN` for its value.
    #[cfg_attr(feature = "schemas", schema(example = "team=pay*", max_length = 766))]
    pub tag: Option<String>,
}

/// Values that a rule assigns; at least one.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schemas", schema(as = OwnershipAssignment))]
pub struct AssignBody {
    /// The team that answers.
    #[cfg_attr(feature = "schemas", schema(example = "payments", max_length = 200))]
    pub team: Option<String>,
    /// The owner.
    #[cfg_attr(feature = "schemas", schema(max_length = 200))]
    pub owner: Option<String>,
    /// The environment: `production`.
    #[cfg_attr(feature = "schemas", schema(max_length = 200))]
    pub environment: Option<String>,
    /// Labels, at most 32.
    pub tags: BTreeMap<String, String>,
}

/// What a rule takes from the value of a tag, by the tag's key. A rule that takes something holds only where it finds
/// something to take; what it does not find is as `assign` says.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schemas", schema(as = OwnershipFromTags))]
pub struct FromTagsBody {
    /// The team that answers.
    #[cfg_attr(feature = "schemas", schema(example = "team", max_length = 512))]
    pub team: Option<String>,
    /// The owner.
    #[cfg_attr(feature = "schemas", schema(max_length = 512))]
    pub owner: Option<String>,
    /// The environment: `production`.
    #[cfg_attr(feature = "schemas", schema(max_length = 512))]
    pub environment: Option<String>,
}

/// A rule.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = OwnershipRule))]
pub struct RuleView {
    /// Its identity.
    pub id: Uuid,
    /// Its name, unique.
    #[cfg_attr(feature = "schemas", schema(example = "payments"))]
    pub name: String,
    /// Its place among the others, lowest first; of equal ones the name decides.
    pub position: u32,
    /// The conditions of the rule.
    pub when: WhenBody,
    /// The owner, team and environment that the rule assigns.
    pub assign: AssignBody,
    /// Values that are taken from tags.
    pub from_tags: FromTagsBody,
    /// Creation time.
    pub created_at: String,
    /// When it was last changed.
    pub updated_at: String,
}

/// A rule to make, or what one shall be.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = OwnershipRuleBody))]
pub struct RuleBody {
    /// Unique: letters, digits, `.`, `_` and `-`.
    #[cfg_attr(feature = "schemas", schema(example = "payments", min_length = 1, max_length = 64))]
    pub name: String,
    /// Its place among the others, lowest first. When absent, a new rule goes behind all others, ten after the last, and one
    /// that is replaced stays where it is.
    #[cfg_attr(feature = "schemas", schema(maximum = 1_000_000))]
    pub position: Option<u32>,
    /// The conditions of the rule.
    #[serde(default)]
    pub when: WhenBody,
    /// Whom it names; may be empty when something is taken from tags.
    #[serde(default)]
    pub assign: AssignBody,
    /// Values that are taken from tags.
    #[serde(default)]
    pub from_tags: FromTagsBody,
}

/// Something that was found, or might be. What is absent is not known, and meets no condition.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schemas", schema(as = OwnershipQuestion))]
pub struct QuestionBody {
    /// Name, address or path.
    pub host: String,
    /// The requested server name (SNI).
    pub server_name: String,
    /// The address; the host when that is one and this is absent.
    pub address: Option<String>,
    /// The certificate's subject alternative names; the first 256 count.
    pub names: Vec<String>,
    /// Who issued it.
    pub issuer: String,
    /// Protocol or cloud service: `tls`, `smtp`, `aws-acm`.
    pub source: String,
    /// The group of the watch that looks there.
    pub group: String,
    /// Its tags in a cloud or cluster, at most 64.
    pub tags: BTreeMap<String, String>,
}

/// Whose something is, and why.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = OwnershipExplanation))]
pub struct ExplanationView {
    /// The name of the first rule that matches; null when none does.
    pub rule: Option<String>,
    /// The owner, team and environment that the rule assigns.
    pub assign: Option<AssignBody>,
    /// Every rule up to the one that matches, in their order.
    pub steps: Vec<StepView>,
}

/// One rule of an explanation.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = OwnershipStep))]
pub struct StepView {
    /// Its name.
    pub rule: String,
    /// Its place.
    pub position: u32,
    /// Whether it matches.
    pub matches: bool,
    /// The first of its conditions that does not hold, and what is there instead.
    pub why_not: Option<String>,
}
