//! Identities and rules as they are written, and errors in them.

use std::collections::BTreeMap;

use ipnet::IpNet;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a rule decides.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The request is sent.
    Allow,
    /// The request is refused with 403.
    Deny,
    /// The request is sent, and the program's log has a warning: for rules that are to deny later.
    Log,
}

impl Action {
    /// The name in configurations and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Log => "log",
        }
    }

    /// Whether the request is sent.
    #[must_use]
    pub const fn permits(self) -> bool {
        !matches!(self, Self::Deny)
    }
}

/// The identities, teams and tags that a credential is granted to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Grants {
    /// Names of identities.
    pub identities: Vec<String>,
    /// Teams.
    pub teams: Vec<String>,
    /// Tags.
    pub tags: Vec<String>,
}

impl Grants {
    /// Whether they name nobody.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.identities.is_empty() && self.teams.is_empty() && self.tags.is_empty()
    }
}

/// Limits of one identity. A limit that is absent does not apply.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetText {
    /// Requests a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
    /// Requests and tunnels at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_requests: Option<u32>,
    /// Bytes of bodies and tunnels an hour, both directions together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_hour: Option<u64>,
}

/// Claims by which a JSON Web Token is recognised.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct JwtText {
    /// The name of the issuer in `[[proxy.access.issuers]]`.
    pub issuer: String,
    /// Names of claims, or JSON Pointers, and patterns of their values, in which `*` stands for any text. All must match.
    pub claims: BTreeMap<String, String>,
}

/// An identity: an agent, a job or a person. At least one of `users`, `certificates`, `jwt` and `networks` recognises it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdentityText {
    /// The name in rules and logs.
    pub name: String,
    /// Teams that it is a member of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<String>,
    /// Tags, for rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The time (RFC 3339) from which it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Names of users (password) and tokens of `[proxy.access]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Subjects (`CN=ci`) or URI names (`spiffe://mesh.example/ci`) of client certificates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
    /// JSON Web Tokens by their claims.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jwt: Vec<JwtText>,
    /// Networks of clients that have not authenticated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<IpNet>,
    /// Its limits.
    pub budget: BudgetText,
}

/// A rule of the policy. All conditions that are present must match; of a list, one entry.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyRuleText {
    /// The name in answers and logs; without one, its position (`#1`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Identities. `identities`, `teams` and `tags` are one condition: one entry of any of them must match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<String>,
    /// Teams of identities.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<String>,
    /// Tags of identities.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// A preset, in place of all conditions on the request. The configuration replaces such a rule by those of the preset.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preset: String,
    /// Verified hosts: `NAME`, `*.NAME` or an address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<String>,
    /// Ports. Default: 443; all ports for rules that deny.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub port: Vec<u16>,
    /// Methods, in upper case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub method: Vec<String>,
    /// Globs for the normalised path: `*` within a segment, `**` for any number of segments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// Parameters of the query and globs for their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// Headers and globs for their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub header: BTreeMap<String, String>,
    /// The maximum size of the request's body. A body of unknown size does not match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_bytes_max: Option<u64>,
    /// The decision. Default: `allow`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
}

impl PolicyRuleText {
    pub(super) fn grants(&self) -> Grants {
        let (identities, teams, tags) = (self.identities.clone(), self.teams.clone(), self.tags.clone());
        Grants { identities, teams, tags }
    }

    /// Whether the rule has conditions on the request, its host included.
    #[must_use]
    pub fn has_conditions(&self) -> bool {
        let Self { host, port, method, path, query, header, body_bytes_max, .. } = self;
        let lists = [host.is_empty(), port.is_empty(), method.is_empty(), path.is_empty()];
        let is_plain = lists.iter().all(|is_empty| *is_empty) && query.is_empty() && header.is_empty();
        !is_plain || body_bytes_max.is_some()
    }
}

/// Identities, rules and the default.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyText {
    /// The decision about requests that no rule matches. Default: `deny` once there is an identity or a rule.
    pub default: Option<Action>,
    /// The identities.
    pub identities: Vec<IdentityText>,
    /// The rules, in the order in which they are tried.
    pub rules: Vec<PolicyRuleText>,
}

/// An error in a policy: position, reason, correction.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{list}[{number}]{}: {key}: {why}", if name.is_empty() { String::new() } else { format!(" ({name})") })]
pub struct BadPolicy {
    /// `identities` or `rules`.
    pub list: &'static str,
    /// The position in the list, from 1.
    pub number: usize,
    /// The name, if there is one.
    pub name: String,
    /// The key.
    pub key: &'static str,
    /// The error.
    pub why: String,
    /// The correction.
    pub hint: &'static str,
}
