//! Tokens of a UAA, or of another JWT issuer. They are verified with the published keys, without a request for each token.

use std::str::FromStr;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::refusal::Refused;
use crate::access::issuer::{Issuer, IssuerError};

/// Maximum difference between the issuer's clock and the local one, s.
const LEEWAY: i64 = 60;

/// Scopes that a token of a UAA must have.
const SCOPES: [&str; 2] = ["credhub.read", "credhub.write"];

/// Rule by which the actor is derived from a token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ActorRule {
    /// CredHub's rule for a UAA: `uaa-client:CLIENT_ID` or `uaa-user:USER_ID`, depending on the claim `grant_type`.
    Uaa,
    /// A template with claims in braces: `k8s:{sub}`, `github:{repository}:{ref}`.
    Claims(ClaimTemplate),
}

/// A template with claims of a token in braces. The template begins with a prefix of its own, so that no other issuer's token can
/// have the same actor name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClaimTemplate {
    prefix: String,
    /// Pairs of a claim and the text after it.
    claims: Vec<(String, String)>,
}

/// Reserved prefixes of actors that authenticate by other means.
const OWN_PREFIXES: [&str; 8] =
    ["uaa-client:", "uaa-user:", "mtls-app:", "certificate:", "token:", "user:", "agent:", "node:"];

/// Prefixes of actors that no claim may contain, so that permissions and logs cannot be misread.
const NOT_IN_CLAIMS: [&str; 4] = ["uaa-client:", "uaa-user:", "mtls-app:", "certificate:"];

/// Returns the claim value if it may become part of an actor.
fn usable(value: &str) -> Option<&str> {
    let low = value.to_ascii_lowercase();
    let reserved = NOT_IN_CLAIMS.iter().any(|prefix| low.contains(prefix));
    (!value.is_empty() && !reserved).then_some(value)
}

/// The text is not a valid template for actors.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not an actor template: {reason}")]
pub struct BadTemplate {
    text: String,
    reason: &'static str,
}

impl FromStr for ClaimTemplate {
    type Err = BadTemplate;

    fn from_str(text: &str) -> Result<Self, BadTemplate> {
        let bad = |reason| BadTemplate { text: text.to_owned(), reason };
        let mut parts = text.split('{');
        let prefix = parts.next().unwrap_or_default().to_owned();
        if prefix.len() < 2 || !prefix.ends_with(':') {
            return Err(bad("start with a prefix and a colon, as in k8s:{sub}"));
        }
        if OWN_PREFIXES.iter().any(|own| prefix.to_ascii_lowercase().starts_with(own)) {
            return Err(bad(
                "choose another prefix: this one is reserved for actors that authenticate by other means",
            ));
        }
        let claims = parts.map(|part| {
            let (claim, after) = part.split_once('}').ok_or_else(|| bad("a brace is not closed"))?;
            match claim.is_empty() || after.contains('}') {
                true => Err(bad("empty or unbalanced braces")),
                false => Ok((claim.to_owned(), after.to_owned())),
            }
        });
        let claims = claims.collect::<Result<Vec<_>, _>>()?;
        if claims.is_empty() {
            return Err(bad("name a claim in braces, as in k8s:{sub}"));
        }
        Ok(Self { prefix, claims })
    }
}

impl ClaimTemplate {
    /// Returns the actor; `None` if a claim is missing, empty, not a string, or contains the prefix of other actors.
    fn actor(&self, claims: &Map<String, Value>) -> Option<String> {
        let mut actor = self.prefix.clone();
        for (claim, after) in &self.claims {
            let value = claims.get(claim)?.as_str().and_then(usable)?;
            // Rejects a claim that contains the separator, because different claims could then yield the same actor.
            if self.claims.len() > 1 && !after.is_empty() && value.contains(after.as_str()) {
                return None;
            }
            actor.push_str(value);
            actor.push_str(after);
        }
        Some(actor)
    }
}

/// An external issuer whose tokens the credential store accepts.
#[derive(Clone, Debug)]
pub struct UaaOptions {
    /// URL of the issuer, at which clients log in: `https://uaa.example:8443`.
    pub url: String,
    /// Trust anchors (DER) for the issuer's TLS certificate, in place of the system's.
    pub roots: Vec<Vec<u8>>,
    /// Accepted audiences of a token. Empty: any audience, as in CredHub.
    pub audience: Vec<String>,
    /// Scopes that a token must have, all of them. Empty: no scope is required.
    pub scopes: Vec<String>,
    /// Rule by which the actor is derived from a token.
    pub actor: ActorRule,
}

impl UaaOptions {
    /// Creates the settings for a UAA, with the rules of CredHub.
    #[must_use]
    pub fn uaa(url: String, roots: Vec<Vec<u8>>, audience: Vec<String>) -> Self {
        Self { url, roots, audience, scopes: SCOPES.map(str::to_owned).into(), actor: ActorRule::Uaa }
    }
}

/// A UAA or other issuer. Its keys are fetched with the first token, and again when a token names an unknown key.
#[derive(Clone)]
pub(crate) struct Uaa {
    issuer: Issuer,
    options: UaaOptions,
}

impl std::fmt::Debug for Uaa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Uaa").field(&self.options).finish()
    }
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    exp: i64,
    nbf: Option<i64>,
    #[serde(default)]
    aud: StringList,
    #[serde(default)]
    scope: StringList,
    grant_type: Option<String>,
    client_id: Option<String>,
    user_id: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// A list of strings, or one string with words separated by spaces.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum StringList {
    #[default]
    None,
    Words(String),
    List(Vec<String>),
}

impl StringList {
    fn has(&self, wanted: &str) -> bool {
        match self {
            Self::None => false,
            Self::Words(text) => text.split(' ').any(|word| word == wanted),
            Self::List(all) => all.iter().any(|one| one == wanted),
        }
    }
}

fn unauthorized(error: &str, description: &str) -> Refused {
    Refused::oauth(StatusCode::UNAUTHORIZED, error, description)
}

impl Uaa {
    /// Creates the issuer without sending a request, so that the credential store can start while its issuer is unavailable.
    pub(super) fn new(options: UaaOptions) -> Result<Self, IssuerError> {
        // A UAA uses the URL of its token endpoint as its name; every other issuer uses its own URL (Discovery section 4.3).
        let named = options.actor != ActorRule::Uaa;
        Ok(Self { issuer: Issuer::new(&options.url, named, &options.roots)?, options })
    }

    /// Returns whether the issuer is a UAA. The actors of its tokens are named `uaa-client:…` or `uaa-user:…`.
    pub(super) fn is_uaa(&self) -> bool {
        self.options.actor == ActorRule::Uaa
    }

    /// Returns the URL at which clients log in.
    pub(crate) fn url(&self) -> &str {
        self.options.url.trim_end_matches('/')
    }

    /// Verifies a token and returns its actor.
    pub(crate) async fn actor(&self, token: &str, now: i64) -> Result<String, Refused> {
        let name = self.issuer.description().await.map_err(|_| issuer_unavailable())?.issuer.clone();
        let claims: Claims = self.issuer.verified_claims(token).await.map_err(|problem| {
            if problem.status().is_server_error() {
                return issuer_unavailable();
            }
            unauthorized(
                "invalid_token",
                "The request token signature could not be verified. Please validate that your request token was issued \
                 by the UAA server authorized by CredHub.",
            )
        })?;
        claims.checked(&name, &self.options, now)
    }
}

fn issuer_unavailable() -> Refused {
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, "The token issuer does not answer. Please try again.")
}

impl Claims {
    fn checked(&self, issuer: &str, options: &UaaOptions, now: i64) -> Result<String, Refused> {
        let audience = &options.audience;
        if self.iss != issuer {
            return Err(unauthorized(
                "invalid_token",
                "The request token identity zone does not match the UAA server authorized by CredHub. Please validate \
                 that your request token was issued by the UAA server authorized by CredHub and retry your request.",
            ));
        }
        if self.exp.saturating_add(LEEWAY) <= now {
            return Err(unauthorized("access_token_expired", "Access token expired"));
        }
        if self.nbf.is_some_and(|nbf| nbf.saturating_sub(LEEWAY) > now) {
            return Err(unauthorized(
                "invalid_token",
                "The token is not valid yet: check the clocks of this server and of the issuer",
            ));
        }
        if !audience.is_empty() && !audience.iter().any(|wanted| self.aud.has(wanted)) {
            return Err(unauthorized("invalid_token", "The token is for another audience"));
        }
        if !options.scopes.iter().all(|scope| self.scope.has(scope)) {
            let needed = format!("The token needs the scopes {}", options.scopes.join(" and "));
            return Err(Refused::oauth(StatusCode::FORBIDDEN, "insufficient_scope", &needed));
        }
        let actor = match &options.actor {
            ActorRule::Uaa => self.uaa_actor(),
            ActorRule::Claims(template) => template.actor(&self.all()),
        };
        actor.ok_or_else(|| {
            unauthorized("invalid_token", "The token names neither a client nor a user, or a reserved actor")
        })
    }
}

impl Claims {
    fn uaa_actor(&self) -> Option<String> {
        let named = |name: &Option<String>| name.as_deref().and_then(usable).map(str::to_owned);
        match self.grant_type.as_deref() {
            Some("client_credentials") => named(&self.client_id).map(|id| format!("uaa-client:{id}")),
            Some("password") => named(&self.user_id).map(|id| format!("uaa-user:{id}")),
            _ => None,
        }
    }

    /// Returns every claim that a template may name.
    fn all(&self) -> Map<String, Value> {
        let mut all = self.others.clone();
        for (name, value) in
            [("grant_type", &self.grant_type), ("client_id", &self.client_id), ("user_id", &self.user_id)]
        {
            all.extend(value.iter().map(|value| (name.to_owned(), Value::from(value.as_str()))));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: i64 = 1_795_219_200;

    fn outcome(change: Value) -> Result<String, String> {
        let mut claims = json!({
            "iss": "https://uaa.example/oauth/token", "exp": NOW + 300, "aud": ["credhub", "ci"],
            "scope": ["credhub.read", "credhub.write"], "grant_type": "client_credentials", "client_id": "ci",
        });
        for (name, value) in change.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        let claims: Claims = serde_json::from_value(claims).map_err(|error| error.to_string())?;
        let options = UaaOptions::uaa(String::new(), Vec::new(), vec!["credhub".to_owned()]);
        claims
            .checked("https://uaa.example/oauth/token", &options, NOW)
            .map_err(|refused| format!("{refused:?}"))
    }

    /// Kubernetes and GitHub sign tokens without scope and grant type.
    #[test]
    fn actor_is_derived_from_oidc_claims_by_template() {
        let outcome = |rule: &str, scopes: &[&str], claims: Value| {
            let mut all = json!({ "iss": "https://k8s.example", "exp": NOW + 300, "aud": "bulla" });
            all.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
            let claims: Claims = serde_json::from_value(all).unwrap();
            let options = UaaOptions {
                url: String::new(),
                roots: Vec::new(),
                audience: vec!["bulla".to_owned()],
                scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
                actor: ActorRule::Claims(rule.parse().unwrap()),
            };
            claims.checked("https://k8s.example", &options, NOW).map_err(|refused| format!("{refused:?}"))
        };
        let pod = json!({ "sub": "system:serviceaccount:shop:api", "iat": NOW });
        assert_eq!(outcome("k8s:{sub}", &[], pod.clone()).unwrap(), "k8s:system:serviceaccount:shop:api");
        let run = json!({ "sub": "x", "repository": "a/b", "ref": "refs/heads/main" });
        assert_eq!(outcome("gh:{repository}@{ref}", &[], run).unwrap(), "gh:a/b@refs/heads/main");
        for (rule, scopes, claims, why) in [
            ("k8s:{sub}", &["credhub.read"][..], pod.clone(), "credhub.read"),
            ("k8s:{sub}", &[], json!({}), "neither a client nor a user"),
            ("k8s:{sub}", &[], json!({ "sub": "" }), "neither a client nor a user"),
            ("k8s:{sub}", &[], json!({ "sub": ["a"] }), "neither a client nor a user"),
            ("k8s:{sub}", &[], json!({ "sub": "a", "aud": "other" }), "another audience"),
            ("gh:{a}@{b}", &[], json!({ "a": "x@y", "b": "z" }), "neither a client nor a user"),
        ] {
            let refused = outcome(rule, scopes, claims.clone()).unwrap_err();
            assert!(refused.contains(why), "{rule} {claims}: {refused}");
        }
        for bad in [
            "",
            "{sub}",
            "k8s",
            "k8s:",
            "k8s:{sub",
            "k8s:{}",
            "k8s:{a}}",
            "mtls-app:{sub}",
            "uaa-user:{sub}",
            "UAA-User:{sub}",
            "user:{sub}",
            "token:x:{sub}",
        ] {
            assert!(bad.parse::<ClaimTemplate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn actors_of_two_issuers_never_collide() {
        let template: ClaimTemplate = "k8s:{sub}".parse().unwrap();
        for prefix in OWN_PREFIXES {
            for prefix in [prefix.to_owned(), prefix.to_ascii_uppercase(), format!("{prefix}more:")] {
                assert!(format!("{prefix}{{sub}}").parse::<ClaimTemplate>().is_err(), "{prefix}");
            }
            let claims = json!({ "sub": format!("{prefix}ann") });
            let actor = template.actor(claims.as_object().unwrap());
            assert!(actor.as_ref().is_none_or(|actor| actor.starts_with("k8s:")), "{actor:?}");
            assert_eq!(actor.is_none(), NOT_IN_CLAIMS.contains(&prefix), "{prefix}");
        }
        for change in [
            json!({ "client_id": "x uaa-user:ann" }),
            json!({ "grant_type": "password", "user_id": "UAA-CLIENT:ci" }),
        ] {
            assert!(outcome(change.clone()).unwrap_err().contains("reserved actor"), "{change}");
        }
    }

    #[test]
    fn uaa_token_claims_are_validated() {
        assert_eq!(outcome(json!({})).unwrap(), "uaa-client:ci");
        let user =
            json!({ "grant_type": "password", "user_id": "7", "scope": "credhub.write x credhub.read" });
        assert_eq!(outcome(user).unwrap(), "uaa-user:7");
        assert!(outcome(json!({ "exp": NOW - 59 })).is_ok(), "within the leeway");
        for (change, why) in [
            (json!({ "iss": "https://other.example" }), "identity zone"),
            (json!({ "exp": NOW - 60 }), "access_token_expired"),
            (json!({ "exp": null }), "exp"),
            (json!({ "nbf": NOW + 61 }), "not valid yet"),
            (json!({ "aud": "other" }), "another audience"),
            (json!({ "scope": ["credhub.read"] }), "insufficient_scope"),
            (json!({ "grant_type": "authorization_code" }), "neither a client nor a user"),
            (json!({ "client_id": "" }), "neither a client nor a user"),
        ] {
            let error = outcome(change.clone()).unwrap_err();
            assert!(error.contains(why), "{change}: {error}");
        }
    }
}
