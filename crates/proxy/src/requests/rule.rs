//! Text form of a rule, and its errors.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::policy::{Grants, SessionProtocol};

/// A rule of `[[proxy.rules]]`: its conditions and actions. An absent condition matches all requests.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleText {
    /// Name of the rule in logs and recordings; by default its position (`#1`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Hosts that the request names: `NAME`, `*.NAME` or an address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<String>,
    /// Server names of the client's TLS handshake, in the same form.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_name: Vec<String>,
    /// Methods, in upper case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub method: Vec<String>,
    /// Patterns for the whole path without its query; `*` matches any bytes, including none and slashes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// Networks that the client's address must be in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub client: Vec<IpNet>,
    /// Media types of the request: `application/json`, `text/*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub request_type: Vec<String>,
    /// Media types of the response. Such a rule acts on responses only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub response_type: Vec<String>,
    /// Header fields to set in the request.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set_request_headers: BTreeMap<String, String>,
    /// Header fields to remove from the request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_request_headers: Vec<String>,
    /// Header fields to set in the response.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set_response_headers: BTreeMap<String, String>,
    /// Header fields to remove from the response.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_response_headers: Vec<String>,
    /// URL that the client is redirected to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<String>,
    /// Status of the redirect: 301, 302 (default), 303, 307 or 308.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_status: Option<u16>,
    /// Status of the refusal that the client gets instead of the upstream's response, 400 to 599.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u16>,
    /// The body of the refusal: HTML if it begins with `<`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// New host or path of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<RewriteText>,
    /// Delay of the request in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Whether to record the exchange in a HAR file.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub record: bool,
    /// Credential to inject into the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inject: Option<InjectText>,
}

/// The action `rewrite` of a rule: sends the request to another path, another host, or both.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RewriteText {
    /// Prefix of the request's path that `to` replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The new prefix of paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The new host, with an optional port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The action `inject` of a rule: the credential, its form in the request, and the identities that get it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct InjectText {
    /// Path in the credential store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Field of the credential; for nested fields, the outer one first: `a.b`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// File with the credential, instead of the store; only its owner may have access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Role of dynamic credentials in the store, instead of a credential: each identity gets a lease of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Form of the credential in the request.
    #[serde(rename = "as")]
    pub form: Form,
    /// User name for `basic`, `postgresql` and `redis`. Without it, the credential must have the fields `username` and `password`, or the file must
    /// contain `user:password`. For `redis`, an empty user, or a file without a colon, is a password without a user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Name of the header field, for the form `header`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Text before the credential in the header: `Bearer `.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// AWS service for the form `sigv4`, such as `s3`. Requires `region`. Default: derived from the host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// AWS region for the form `sigv4`, such as `eu-central-1`. Requires `service`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// OAuth scopes of tokens for the form `google`, separated by spaces. Default: `https://www.googleapis.com/auth/cloud-platform`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Ports of the host that may receive the credential, in addition to 443 (80 without TLS; 5432 for the form `postgresql`, 6379 for
    /// `redis`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub port: Vec<u16>,
    /// Databases that the credential is for, with the forms `postgresql` and `redis`; `*` matches any text. Default: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub database: Vec<String>,
    /// Identities that get the credential. If identities are configured, a credential without `identities`, `teams` and `tags` is
    /// not granted to any identity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<String>,
    /// Teams whose identities get the credential.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<String>,
    /// Tags: each identity with one of these tags gets the credential.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Whether the credential may be sent over plain HTTP, or to a server whose certificate is not verified.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// Whether the body of a response may contain the credential. By default it is masked there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_echo: bool,
}

impl InjectText {
    /// Returns the identities, teams and tags that the credential is granted to.
    #[must_use]
    pub fn grants(&self) -> Grants {
        let (identities, teams, tags) = (self.identities.clone(), self.teams.clone(), self.tags.clone());
        Grants { identities, teams, tags }
    }
}

/// The form of a credential in a request.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// `Authorization: Bearer` (RFC 6750).
    #[default]
    Bearer,
    /// `Authorization: Basic` (RFC 7617).
    Basic,
    /// A header field with another name.
    Header,
    /// A signature of the request with an access key of AWS (Signature Version 4).
    SigV4,
    /// `Authorization: Bearer` with a token that the proxy signs with the key of a Google Cloud service account.
    Google,
    /// User and password of a PostgreSQL server, for sessions of `[[proxy.postgresql]]`.
    Postgresql,
    /// User and password of a Redis server, for sessions of `[[proxy.redis]]`.
    Redis,
}

impl Form {
    /// Returns the protocol of the sessions that a credential of this form is for; `None` if it is for requests.
    pub(super) const fn session_protocol(self) -> Option<SessionProtocol> {
        match self {
            Self::Postgresql => Some(SessionProtocol::Postgresql),
            Self::Redis => Some(SessionProtocol::Redis),
            Self::Bearer | Self::Basic | Self::Header | Self::SigV4 | Self::Google => None,
        }
    }
}

/// An error in a rule: position, setting, reason and fix.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("rule {number}{}: {key}: {why}", if name.is_empty() { String::new() } else { format!(" ({name})") })]
pub struct BadRequestRule {
    /// Position of the rule, from 1.
    pub number: usize,
    /// Name of the rule; empty if it has none.
    pub name: String,
    /// Key of the invalid setting.
    pub key: &'static str,
    /// Reason why the value is rejected.
    pub why: String,
    /// How to fix the error.
    pub hint: &'static str,
}
