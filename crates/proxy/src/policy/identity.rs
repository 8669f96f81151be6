//! Identities of a policy, and the search for the identity of a client.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;
use x509::star;

use super::glob::GLOB_BYTES_MAX;
use super::text::{BudgetText, IdentityText};
use crate::destination::Networks;
use crate::setting::{InvalidSetting, invalid};

/// Method by which a client authenticated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Evidence<'a> {
    /// The client has not authenticated.
    Nothing,
    /// A password or a token of this user.
    User(&'a str),
    /// A client certificate with this subject.
    Certificate {
        /// Subject of the certificate, such as `CN=ci`.
        subject: &'a str,
        /// URI names of the certificate, such as a SPIFFE ID.
        uris: &'a [Arc<str>],
    },
    /// A verified JSON Web Token.
    Jwt {
        /// Name of the token's issuer in the configuration.
        issuer: &'a str,
        /// Claims of the token, as a JSON object.
        claims: &'a Value,
    },
}

/// Evidence about a client: how it has authenticated, and its address.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// How the client has authenticated.
    pub evidence: Evidence<'a>,
    /// Address of the client.
    pub address: IpAddr,
}

/// Compiled identity of a policy: name, teams, tags, expiry and budget.
#[derive(Debug)]
pub struct Identity {
    /// Name of the identity in the policy.
    pub name: Arc<str>,
    /// Teams that the identity belongs to. Rules and grants may name them.
    pub teams: Vec<Arc<str>>,
    /// Tags of the identity. Rules and grants may name them.
    pub tags: Vec<Arc<str>>,
    /// Expiry in seconds since 1970-01-01 UTC; requests are denied from this second on.
    pub expires: Option<i64>,
    /// Limits of requests, concurrency and bytes.
    pub budget: BudgetText,
    /// Index numbers of the identity's name, teams and tags.
    pub(super) keys: Vec<u32>,
}

impl Identity {
    /// Returns whether the identity has expired at `now` (seconds since 1970-01-01 UTC).
    #[must_use]
    pub fn has_expired(&self, now: i64) -> bool {
        self.expires.is_some_and(|expires| now >= expires)
    }
}

/// Identities by the evidence that identifies them.
#[derive(Debug, Default)]
pub(super) struct IdentityIndex {
    users: HashMap<Arc<str>, Arc<Identity>>,
    certificates: HashMap<Arc<str>, Arc<Identity>>,
    /// Claims of identities by issuer, in the order of the configuration.
    jwts: HashMap<String, Vec<(BTreeMap<String, String>, Arc<Identity>)>>,
    networks: Networks<Arc<Identity>>,
}

impl IdentityIndex {
    /// Adds the evidence by which `identity` is recognised.
    pub(super) fn add(
        &mut self,
        text: &IdentityText,
        identity: &Arc<Identity>,
    ) -> Result<(), InvalidSetting> {
        let twice = |key, what: String| {
            invalid(
                key,
                format!("{what} already belongs to another identity"),
                "list it in one identity only",
            )
        };
        for user in &text.users {
            if self.users.insert(user.as_str().into(), Arc::clone(identity)).is_some() {
                return Err(twice("users", format!("{user:?}")));
            }
        }
        for certificate in &text.certificates {
            if self.certificates.insert(certificate.as_str().into(), Arc::clone(identity)).is_some() {
                return Err(twice("certificates", format!("{certificate:?}")));
            }
        }
        for jwt in &text.jwt {
            let wrong = |why: String| {
                invalid("jwt", why, "{ issuer = \"github\", claims = { repository = \"acme/shop\" } }")
            };
            if jwt.claims.values().all(|pattern| pattern.bytes().all(|byte| byte == b'*')) {
                return Err(wrong(format!("no claim of {:?} is restricted to a value", jwt.issuer)));
            }
            if jwt.claims.iter().any(|(name, pattern)| name.is_empty() || pattern.len() > GLOB_BYTES_MAX) {
                return Err(wrong(
                    "a claim has an empty name, or a value longer than 1,024 bytes".to_owned(),
                ));
            }
            let of_issuer = self.jwts.entry(jwt.issuer.clone()).or_default();
            of_issuer.push((jwt.claims.clone(), Arc::clone(identity)));
        }
        for network in &text.networks {
            if !self.networks.insert(network.trunc(), None, Arc::clone(identity)) {
                return Err(twice("networks", network.to_string()));
            }
        }
        Ok(())
    }

    /// Returns the identity of a client. A client that has authenticated is never recognised by its network alone.
    pub(super) fn identify(&self, presented: &Presented<'_>) -> Option<&Arc<Identity>> {
        match presented.evidence {
            Evidence::User(name) => self.users.get(name),
            Evidence::Certificate { subject, uris } => {
                let by_uri = uris.iter().find_map(|uri| self.certificates.get(uri));
                by_uri.or_else(|| self.certificates.get(subject))
            }
            Evidence::Jwt { issuer, claims } => {
                let matches = |wanted: &BTreeMap<String, String>| {
                    wanted.iter().all(|(name, pattern)| has_claim(claims, name, pattern))
                };
                let of_issuer = self.jwts.get(issuer)?;
                of_issuer.iter().find(|(wanted, _)| matches(wanted)).map(|(_, identity)| identity)
            }
            Evidence::Nothing => self.networks.get(presented.address.to_canonical(), 0),
        }
    }
}

/// Returns whether a token has a claim that matches. Lists and objects match no pattern.
fn has_claim(claims: &Value, name: &str, pattern: &str) -> bool {
    let found = if name.starts_with('/') { claims.pointer(name) } else { claims.get(name) };
    match found {
        Some(Value::String(text)) => star::matches(pattern, text),
        Some(other @ (Value::Bool(_) | Value::Number(_))) => star::matches(pattern, &other.to_string()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_match_by_name_and_json_pointer() {
        let claims = json!({
            "sub": "system:serviceaccount:build:runner", "run": 7, "protected": true, "groups": ["a"],
            "kubernetes.io": { "namespace": "build" },
        });
        for (name, pattern, matches) in [
            ("sub", "system:serviceaccount:build:*", true),
            ("sub", "system:serviceaccount:build", false),
            ("run", "7", true),
            ("protected", "true", true),
            ("/kubernetes.io/namespace", "build", true),
            ("/kubernetes.io/namespace", "other", false),
            ("kubernetes.io", "*", false),
            ("groups", "*", false),
            ("absent", "*", false),
        ] {
            assert_eq!(has_claim(&claims, name, pattern), matches, "{name} {pattern}");
        }
    }
}
