//! A rule as it is written, and what is wrong with one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::policy::Grants;

/// One of `[[proxy.rules]]`: for which requests it is, and what becomes of them. Conditions that are left out are met by all.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleText {
    /// By which logs and recordings call it; its place (`#1`) without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The host that the request names: `NAME`, `*.NAME` or an address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<String>,
    /// The name that the client's handshake was for, in the same form.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server_name: Vec<String>,
    /// Methods, in upper case.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub method: Vec<String>,
    /// The whole path, without its query; `*` stands for any bytes, none and slashes included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// The client's network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub client: Vec<IpNet>,
    /// The request's media type: `application/json`, `text/*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub request_type: Vec<String>,
    /// The answer's; such a rule acts on answers alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub response_type: Vec<String>,
    /// Headers of the request to be replaced.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set_request_headers: BTreeMap<String, String>,
    /// To be taken out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_request_headers: Vec<String>,
    /// Headers of the answer to be replaced.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set_response_headers: BTreeMap<String, String>,
    /// To be taken out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_response_headers: Vec<String>,
    /// A URL that the client is sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<String>,
    /// With which status: 301, 302 (where nothing is said), 303, 307, 308.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_status: Option<u16>,
    /// The status of a refusal, 400 to 599.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u16>,
    /// The body of the refusal: HTML if it begins with `<`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// Another host or path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<RewriteText>,
    /// How long the request is held back, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Whether to record the exchange.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub record: bool,
    /// A credential that is put in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inject: Option<InjectText>,
}

/// `rewrite` of a rule.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RewriteText {
    /// Prefix of the path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The new prefix of paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The host that is asked instead, with a port where it is to be another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// `inject` of a rule.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct InjectText {
    /// Its path in the credential store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// A field of it, of those in one another the outer first: `a.b`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// A file that holds it, in place of the store; its owner's alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// In which form.
    #[serde(rename = "as")]
    pub form: Form,
    /// The user, with `basic`; without one the credential has `username` and `password`, a file `user:password`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The header, with `header`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Text before the credential in the header: `Bearer `.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Ports of its hosts beside 443 (in the clear 80) to which it may go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub port: Vec<u16>,
    /// The identities that get it. Where identities are configured, a credential without `identities`, `teams` and `tags` is for nobody.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<String>,
    /// Teams whose identities get it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub teams: Vec<String>,
    /// Tags whose identities get it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Whether it may go over plain HTTP, or to a server that is not verified.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

impl InjectText {
    /// The identities that get it.
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
    /// A header of one's own.
    Header,
}

/// A rule that cannot be.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("rule {number}{}: {key}: {why}", if name.is_empty() { String::new() } else { format!(" ({name})") })]
pub struct BadRequestRule {
    /// Its place, from one.
    pub number: usize,
    /// Its name, if it has one.
    pub name: String,
    /// The key.
    pub key: &'static str,
    /// The error.
    pub why: String,
    /// The correction.
    pub hint: &'static str,
}
