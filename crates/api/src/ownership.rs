//! Ownership rules for certificates found by scans.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Conditions of a rule. All given conditions must match. A rule without conditions matches everything.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schemas", schema(as = OwnershipConditions))]
pub struct WhenBody {
    /// Pattern for the host or the server name. `*` matches any sequence of characters, including dots.
    #[cfg_attr(feature = "schemas", schema(example = "*.pay.example", max_length = 253))]
    pub host: Option<String>,
    /// Pattern for one of the first 256 subject alternative names of the certificate.
    #[cfg_attr(feature = "schemas", schema(max_length = 253))]
    pub name: Option<String>,
    /// Network that contains the IP address of the endpoint, or this address itself.
    #[cfg_attr(feature = "schemas", schema(example = "10.20.0.0/16"))]
    pub network: Option<String>,
    /// Pattern for the protocol (`tls`, `smtp`, `aws-acm`) or for the group of the watch that scans the endpoint.
    #[cfg_attr(feature = "schemas", schema(example = "aws-*", max_length = 253))]
    pub source: Option<String>,
    /// Text that the issuer's name contains, case-insensitive.
    #[cfg_attr(feature = "schemas", schema(max_length = 256))]
    pub issuer: Option<String>,
    /// Tag of the certificate in a cloud or cluster: `KEY`, or `KEY=PATTERN` to match its value too.
    #[cfg_attr(feature = "schemas", schema(example = "team=pay*", max_length = 766))]
    pub tag: Option<String>,
}

/// Values that a rule assigns. At least one is required.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schemas", schema(as = OwnershipAssignment))]
pub struct AssignBody {
    /// Team that owns the certificate.
    #[cfg_attr(feature = "schemas", schema(example = "payments", max_length = 200))]
    pub team: Option<String>,
    /// Owner of the certificate.
    #[cfg_attr(feature = "schemas", schema(max_length = 200))]
    pub owner: Option<String>,
    /// Environment, such as `production`.
    #[cfg_attr(feature = "schemas", schema(max_length = 200))]
    pub environment: Option<String>,
    /// Tags, at most 32.
    pub tags: BTreeMap<String, String>,
}

/// Keys of tags from which a rule copies values. The rule matches only if at least one of the tags exists. For a tag that does not
/// exist, the value of `assign` applies.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schemas", schema(as = OwnershipFromTags))]
pub struct FromTagsBody {
    /// Key of the tag that contains the team.
    #[cfg_attr(feature = "schemas", schema(example = "team", max_length = 512))]
    pub team: Option<String>,
    /// Key of the tag that contains the owner.
    #[cfg_attr(feature = "schemas", schema(max_length = 512))]
    pub owner: Option<String>,
    /// Key of the tag that contains the environment.
    #[cfg_attr(feature = "schemas", schema(max_length = 512))]
    pub environment: Option<String>,
}

/// An ownership rule: conditions, and the values that it assigns.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = OwnershipRule))]
pub struct RuleView {
    /// UUID of the rule, used in `/api/v1/ownership-rules/{id}`.
    pub id: Uuid,
    /// Name of the rule, unique.
    #[cfg_attr(feature = "schemas", schema(example = "payments"))]
    pub name: String,
    /// Position of the rule. Lower positions are evaluated first; rules with the same position in the order of their names.
    pub position: u32,
    /// The conditions of the rule.
    pub when: WhenBody,
    /// Values that the rule assigns.
    pub assign: AssignBody,
    /// Tags from which the rule copies values.
    pub from_tags: FromTagsBody,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// An ownership rule to create or replace.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schemas", schema(as = OwnershipRuleBody))]
pub struct RuleBody {
    /// Name of the rule, unique: letters, digits, `.`, `_` and `-`.
    #[cfg_attr(feature = "schemas", schema(example = "payments", min_length = 1, max_length = 64))]
    pub name: String,
    /// Position of the rule. Lower positions are evaluated first. When absent, a new rule gets the highest position plus 10, and a
    /// replaced rule keeps its position.
    #[cfg_attr(feature = "schemas", schema(maximum = 1_000_000))]
    pub position: Option<u32>,
    /// The conditions of the rule.
    #[serde(default)]
    pub when: WhenBody,
    /// Values that the rule assigns. May be empty if `from_tags` is not.
    #[serde(default)]
    pub assign: AssignBody,
    /// Tags from which the rule copies values.
    #[serde(default)]
    pub from_tags: FromTagsBody,
}

/// Properties of a certificate, found or hypothetical, for a test of the rules. An absent property matches no condition.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schemas", schema(as = OwnershipQuestion))]
pub struct QuestionBody {
    /// Hostname, IP address or file path.
    pub host: String,
    /// The requested server name (SNI).
    pub server_name: String,
    /// IP address. When absent, the value of `host` if that is an IP address.
    pub address: Option<String>,
    /// Subject alternative names of the certificate. Only the first 256 count.
    pub names: Vec<String>,
    /// Issuer of the certificate.
    pub issuer: String,
    /// Protocol or cloud service: `tls`, `smtp`, `aws-acm`.
    pub source: String,
    /// Group of the watch that scans the endpoint.
    pub group: String,
    /// Tags of the certificate in a cloud or cluster, at most 64.
    pub tags: BTreeMap<String, String>,
}

/// The result of an ownership test, with an explanation.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = OwnershipExplanation))]
pub struct ExplanationView {
    /// Name of the first rule that matches; null if no rule matches.
    pub rule: Option<String>,
    /// Values that the rule assigns.
    pub assign: Option<AssignBody>,
    /// Every rule up to the first one that matches, in order of evaluation.
    pub steps: Vec<StepView>,
}

/// One rule in the explanation of an ownership test.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "schemas", schema(as = OwnershipStep))]
pub struct StepView {
    /// Name of the rule.
    pub rule: String,
    /// Position of the rule.
    pub position: u32,
    /// Whether the rule matches.
    pub matches: bool,
    /// First condition that does not match, and the actual value.
    pub why_not: Option<String>,
}
