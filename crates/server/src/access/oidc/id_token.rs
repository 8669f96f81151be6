//! Verification of the ID token: signed by the issuer, for this client, for this login, and not expired.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::provider::Oidc;
use crate::access::issuer::refused;
use crate::access::managers::LOCAL;
use crate::access::secret;
use crate::problem::Problem;

/// Maximum difference between the issuer's clock and the local one, s.
const LEEWAY: i64 = 60;

/// Maximum length of the subject (OpenID Connect Core section 2).
const SUBJECT_MAX: usize = 255;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Claims {
    iss: String,
    pub(super) sub: String,
    aud: OneOrMany,
    exp: i64,
    iat: i64,
    nbf: Option<i64>,
    azp: Option<String>,
    nonce: Option<String>,
    pub(super) email: Option<String>,
    #[serde(flatten)]
    pub(super) others: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl Oidc {
    /// Verifies an ID token as OpenID Connect Core section 3.1.3.7 requires, and returns its claims.
    pub(super) async fn verified(&self, token: &str, nonce: &str, now: i64) -> Result<Claims, Problem> {
        let claims: Claims = self.issuer().verified_claims(token).await?;
        let options = self.options();
        claims.check(&options.issuer, &options.client_id, nonce, now)?;
        Ok(claims)
    }
}

impl Claims {
    /// Returns the time of the user's last authentication at the issuer, seconds since 1970-01-01 UTC (Core section 2). Not every
    /// issuer sends it.
    pub(super) fn auth_time(&self) -> Option<i64> {
        self.others.get("auth_time").and_then(Value::as_i64)
    }

    fn check(&self, issuer: &str, client_id: &str, nonce: &str, now: i64) -> Result<(), Problem> {
        let audiences = self.aud.as_slice();
        if self.iss != issuer {
            return Err(refused("the ID token is from another issuer"));
        }
        if !audiences.iter().any(|audience| audience == client_id) {
            return Err(refused("the ID token is for another client (claim aud)"));
        }
        let azp_good = match &self.azp {
            Some(azp) => azp == client_id,
            None => audiences.len() == 1,
        };
        if !azp_good {
            return Err(refused("the ID token was issued to another client (claim azp)"));
        }
        if self.exp.saturating_add(LEEWAY) <= now {
            return Err(refused("the ID token has expired"));
        }
        if self.iat.saturating_sub(LEEWAY) > now
            || self.nbf.is_some_and(|nbf| nbf.saturating_sub(LEEWAY) > now)
        {
            return Err(refused(
                "the ID token is not valid yet: check the clocks of this server and of the issuer",
            ));
        }
        if !self.nonce.as_deref().is_some_and(|given| secret::same(given, nonce)) {
            return Err(refused("the ID token belongs to another login (claim nonce)"));
        }
        if self.sub.is_empty() || self.sub.len() > SUBJECT_MAX {
            return Err(refused("the ID token has no valid subject (claim sub)"));
        }
        if self.sub == LOCAL {
            return Err(refused(
                "the subject of the ID token (claim sub) is reserved for users without an issuer",
            ));
        }
        Ok(())
    }

    /// Returns the value of a claim; `None` unless it is a non-empty string.
    pub(super) fn text(&self, claim: &str) -> Option<&str> {
        self.others.get(claim).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// Returns the values of a claim that is a string or a list of strings; empty for any other claim.
    pub(super) fn texts(&self, claim: &str) -> Vec<&str> {
        match self.others.get(claim) {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: i64 = 1_795_219_200;

    fn outcome(change: Value) -> Result<(), String> {
        let mut claims = json!({
            "iss": "https://i.example", "sub": "7", "aud": "bulla", "exp": NOW + 300, "iat": NOW, "nonce": "n",
            "groups": ["a", 7, "b"],
        });
        for (name, value) in change.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        let claims: Claims = serde_json::from_value(claims).map_err(|error| error.to_string())?;
        claims.check("https://i.example", "bulla", "n", NOW).map_err(|problem| problem.to_string())
    }

    #[test]
    fn id_token_claims_are_validated() {
        assert_eq!(outcome(json!({})), Ok(()));
        assert_eq!(outcome(json!({ "aud": ["bulla"] })), Ok(()));
        assert_eq!(outcome(json!({ "aud": ["other", "bulla"], "azp": "bulla" })), Ok(()));
        assert_eq!(outcome(json!({ "exp": NOW - 59 })), Ok(()), "within the leeway");
        for (change, why) in [
            (json!({ "iss": "https://j.example" }), "another issuer"),
            (json!({ "aud": "other" }), "another client (claim aud)"),
            (json!({ "aud": ["other", "bulla"] }), "another client"),
            (json!({ "azp": "other" }), "the ID token was issued to another client"),
            (json!({ "exp": NOW - 60 }), "expired"),
            (json!({ "exp": Value::Null }), "exp"),
            (json!({ "iat": NOW + 61 }), "not valid yet"),
            (json!({ "nbf": NOW + 61 }), "not valid yet"),
            (json!({ "nonce": "m" }), "another login"),
            (json!({ "nonce": Value::Null }), "another login"),
            (json!({ "sub": "" }), "no valid subject"),
            (json!({ "sub": "x".repeat(256) }), "no valid subject"),
            (json!({ "sub": "local" }), "reserved"),
        ] {
            let error = outcome(change.clone()).unwrap_err();
            assert!(error.contains(why), "{change}: {error}");
        }
    }

    #[test]
    fn groups_claim_may_be_a_string_or_a_list_of_strings() {
        let of = |groups: Value| {
            let claims: Claims = serde_json::from_value(json!({
                "iss": "", "sub": "", "aud": "", "exp": 0, "iat": 0, "groups": groups,
            }))
            .unwrap();
            claims.texts("groups").into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of(json!(["a", 7, "b"])), ["a", "b"]);
        assert_eq!(of(json!("a")), ["a"]);
        assert!(of(json!({ "a": true })).is_empty());
    }
}
