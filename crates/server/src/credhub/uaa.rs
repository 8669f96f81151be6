//! Tokens of a UAA, or of another issuer that signs JWTs: checked by its published keys, without asking it.

use http::StatusCode;
use serde::Deserialize;

use super::refusal::Refused;
use crate::access::issuer::{Issuer, IssuerError};

/// Seconds that the issuer's clock may differ from ours.
const LEEWAY: i64 = 60;

/// What a token's scope has to hold, both.
const SCOPES: [&str; 2] = ["credhub.read", "credhub.write"];

/// Who issues the tokens that the credential store accepts beside its own.
#[derive(Clone, Debug)]
pub struct UaaOptions {
    /// Its URL: `https://uaa.example:8443`. Clients are sent there to log in.
    pub url: String,
    /// Its certificate lies below one of these roots (DER), in place of the system's.
    pub roots: Vec<Vec<u8>>,
    /// What the token's audience has to name; anything when empty, as CredHub.
    pub audience: Vec<String>,
}

/// A UAA. Asked for its keys when the first token comes, and again when a token names a key that is not known.
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
    aud: Many,
    #[serde(default)]
    scope: Many,
    grant_type: Option<String>,
    client_id: Option<String>,
    user_id: Option<String>,
}

/// A list, or a text of words.
#[derive(Default, Deserialize)]
#[serde(untagged)]
enum Many {
    #[default]
    None,
    Words(String),
    List(Vec<String>),
}

impl Many {
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
    /// Asks nobody yet: the credential store starts while its issuer is down.
    pub(super) fn new(options: UaaOptions) -> Result<Self, IssuerError> {
        // A UAA calls itself by the URL of its token endpoint.
        Ok(Self { issuer: Issuer::new(&options.url, false, &options.roots)?, options })
    }

    /// Where clients log in.
    pub(crate) fn url(&self) -> &str {
        self.options.url.trim_end_matches('/')
    }

    /// The actor of a token.
    pub(crate) async fn actor(&self, token: &str, now: i64) -> Result<String, Refused> {
        let name = self.issuer.description().await.map_err(|_| away())?.issuer.clone();
        let claims: Claims = self.issuer.signed(token).await.map_err(|problem| {
            if problem.status().is_server_error() {
                return away();
            }
            unauthorized(
                "invalid_token",
                "The request token signature could not be verified. Please validate that your request token was issued \
                 by the UAA server authorized by CredHub.",
            )
        })?;
        claims.checked(&name, &self.options.audience, now)
    }
}

fn away() -> Refused {
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, "The issuer of tokens does not answer. Please try again.")
}

impl Claims {
    fn checked(&self, issuer: &str, audience: &[String], now: i64) -> Result<String, Refused> {
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
            return Err(unauthorized("invalid_token", "The token is not valid yet: compare the clocks"));
        }
        if !audience.is_empty() && !audience.iter().any(|wanted| self.aud.has(wanted)) {
            return Err(unauthorized("invalid_token", "The token is for somebody else"));
        }
        if !SCOPES.iter().all(|scope| self.scope.has(scope)) {
            return Err(Refused::oauth(
                StatusCode::FORBIDDEN,
                "insufficient_scope",
                "The token needs the scopes credhub.read and credhub.write",
            ));
        }
        let named = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        let actor = match self.grant_type.as_deref() {
            Some("client_credentials") => named(&self.client_id).map(|id| format!("uaa-client:{id}")),
            Some("password") => named(&self.user_id).map(|id| format!("uaa-user:{id}")),
            _ => None,
        };
        actor.ok_or_else(|| unauthorized("invalid_token", "The token names neither a client nor a user"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
        let audience = ["credhub".to_owned()];
        claims
            .checked("https://uaa.example/oauth/token", &audience, NOW)
            .map_err(|refused| format!("{refused:?}"))
    }

    #[test]
    fn every_claim_is_checked() {
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
            (json!({ "aud": "other" }), "somebody else"),
            (json!({ "scope": ["credhub.read"] }), "insufficient_scope"),
            (json!({ "grant_type": "authorization_code" }), "neither a client nor a user"),
            (json!({ "client_id": "" }), "neither a client nor a user"),
        ] {
            let error = outcome(change.clone()).unwrap_err();
            assert!(error.contains(why), "{change}: {error}");
        }
    }
}
