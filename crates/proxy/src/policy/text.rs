//! Text form of identities and rules, and its errors.

use std::collections::BTreeMap;

use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Default deadline of a held request, in seconds.
pub const HOLD_FOR_S: u64 = 120;
/// Maximum deadline of a held request, in seconds.
pub const HOLD_FOR_S_MAX: u64 = 3_600;

/// Decision of a rule: allow, deny, log or hold.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Allow the request.
    Allow,
    /// Deny the request with status 403.
    Deny,
    /// Allow the request and log a warning: for testing rules that will later deny.
    Log,
    /// Hold the request until a person approves or rejects it, or its deadline passes.
    Hold,
}

impl Action {
    /// Returns the name of the action in configurations and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Log => "log",
            Self::Hold => "hold",
        }
    }

    /// Returns whether the request is permitted, or may be permitted after an approval.
    #[must_use]
    pub const fn permits(self) -> bool {
        !matches!(self, Self::Deny)
    }

    /// Returns whether the request is permitted without an approval.
    #[must_use]
    pub const fn permits_immediately(self) -> bool {
        matches!(self, Self::Allow | Self::Log)
    }
}

/// The identities, teams and tags that a credential is granted to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Grants {
    /// Names of identities that get the credential.
    pub identities: Vec<String>,
    /// Names of teams whose identities get the credential.
    pub teams: Vec<String>,
    /// Tags: each identity with one of these tags gets the credential.
    pub tags: Vec<String>,
}

impl Grants {
    /// Returns whether nothing is granted to anyone.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.identities.is_empty() && self.teams.is_empty() && self.tags.is_empty()
    }
}

/// Limits of one identity. A limit that is absent does not apply.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetText {
    /// Maximum requests per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
    /// Maximum concurrent requests and tunnels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_requests: Option<u32>,
    /// Maximum bytes of bodies and tunnels per hour, in both directions together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_hour: Option<u64>,
}

/// Claims by which a JSON Web Token is recognised.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JwtText {
    /// Name of the issuer in `[[proxy.access.issuers]]`.
    pub issuer: String,
    /// Names of claims (or JSON Pointers) and patterns of their values, in which `*` matches any text. All must match.
    pub claims: BTreeMap<String, String>,
}

/// An identity: an agent, a job or a person. At least one of `users`, `certificates`, `jwt` and `networks` recognises it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdentityText {
    /// The name in rules and logs.
    pub name: String,
    /// Teams that the identity belongs to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<String>,
    /// Tags of the identity, for rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Expiry (RFC 3339); requests are denied from this time on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Names of users with passwords, and of tokens, in `[proxy.access]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Subjects (`CN=ci`) or URI names (`spiffe://mesh.example/ci`) of client certificates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
    /// Conditions on JSON Web Tokens. A token that meets one of them belongs to the identity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jwt: Vec<JwtText>,
    /// Networks whose clients have this identity if they have not authenticated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<IpNet>,
    /// Limits of requests, concurrency and bytes. Default: no limits.
    pub budget: BudgetText,
}

/// A rule of the policy. All its conditions must match; in a list, one entry must match.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyRuleText {
    /// Name of the rule in responses and logs; by default its position (`#1`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Names of identities. `identities`, `teams` and `tags` are one condition: one entry of any of them must match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<String>,
    /// Teams whose identities match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<String>,
    /// Tags: each identity with one of these tags matches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Name of a preset, instead of conditions on the request. The rules of the preset replace this rule.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preset: String,
    /// Verified hosts: `NAME`, `*.NAME` or an address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<String>,
    /// Ports. Default: 443 (with `database` 5432, and 6379 for Redis); all ports for rules that deny or hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub port: Vec<u16>,
    /// Methods, in upper case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub method: Vec<String>,
    /// Globs for the normalised path: `*` within a segment, `**` for any number of segments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// Query parameters, and globs for their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// Header fields, and globs for their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub header: BTreeMap<String, String>,
    /// Maximum size of the request's body in bytes. A body of unknown size matches only in a rule that denies or holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_bytes_max: Option<u64>,
    /// Databases: names at PostgreSQL servers, and numbers at Redis servers; `*` matches any text. A rule with databases is for
    /// sessions of `[[proxy.postgresql]]` and `[[proxy.redis]]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub database: Vec<String>,
    /// Decision of the rule. Default: `allow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// Seconds that a request may be held, for the action `hold`. Default: [`HOLD_FOR_S`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_for_s: Option<u64>,
}

impl PolicyRuleText {
    pub(super) fn grants(&self) -> Grants {
        let (identities, teams, tags) = (self.identities.clone(), self.teams.clone(), self.tags.clone());
        Grants { identities, teams, tags }
    }

    /// Returns whether the rule has conditions on the request, including its host.
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        self.has_request_conditions()
            || !self.host.is_empty()
            || !self.port.is_empty()
            || !self.database.is_empty()
    }

    /// Returns whether the rule has conditions that only HTTP requests can meet.
    pub(super) fn has_request_conditions(&self) -> bool {
        let Self { method, path, query, header, body_bytes_max, .. } = self;
        let lists = [method.is_empty(), path.is_empty(), query.is_empty(), header.is_empty()];
        lists.contains(&false) || body_bytes_max.is_some()
    }
}

/// Uncompiled policy: identities, rules and default decision.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyText {
    /// The decision about requests that no rule matches. Default: `deny` once there is an identity or a rule.
    pub default: Option<Action>,
    /// Identities; each needs a unique name.
    pub identities: Vec<IdentityText>,
    /// The rules, in the order of evaluation.
    pub rules: Vec<PolicyRuleText>,
}

/// An error in a policy, with position, reason and fix.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{list}[{number}]{}: {key}: {why}", if name.is_empty() { String::new() } else { format!(" ({name})") })]
pub struct BadPolicy {
    /// List with the error: `identities` or `rules`.
    pub list: &'static str,
    /// Position in the list, from 1.
    pub number: usize,
    /// Name of the entry; empty if it has none.
    pub name: String,
    /// Key of the invalid setting.
    pub key: &'static str,
    /// Reason why the value is rejected.
    pub why: String,
    /// How to fix the error.
    pub hint: &'static str,
}
